"""The dashboard: local pages and one-file reports over run directories, into which it writes nothing.

runs/ -> store (which runs there are, what is open) -> views (one function a page's values) -> server | report
"""
# SPDX-License-Identifier: Apache-2.0
