"""Tables of runs: jobs, ledger, runner, reports, verification, dashboards.

Here lives what any table needs; the paper's own tables are no part of the package.
"""
