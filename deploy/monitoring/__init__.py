"""What watches a PushUp; README.md describes the other files.

`dashboard` writes `dashboard.json`, the dashboard for Grafana.
"""
