"""Tests of the Helm chart.

install.sh   builds Helm and kubeconform, and makes the schemas of Kubernetes' objects; run once, then cached
schemas.py   makes the schemas, of the kinds that the chart has
rendered.py  the chart, rendered with some values, and its objects
"""
