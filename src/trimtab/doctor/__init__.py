"""The doctor: rules that read a run record, preflight, and what another algorithm would have done."""
# SPDX-License-Identifier: Apache-2.0
