"""The sandbox put to the test: escapes from it, cheats of the code grader, and what a call costs."""
# SPDX-License-Identifier: Apache-2.0
