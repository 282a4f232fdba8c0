"""The causes that findings name, each with the test that the record can answer. See ``doctor.suspicion``."""
# SPDX-License-Identifier: Apache-2.0
