"""Whoever samples: the engine seam, the local engine, and a scripted one for tests."""
# SPDX-License-Identifier: Apache-2.0
