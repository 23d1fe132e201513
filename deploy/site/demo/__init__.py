"""The animation of the first page, `python -m deploy.site.demo`: a real server, a real browser, real requests.

`recording` runs and photographs them; `stage.html` is what is photographed, with two windows that show `order.html`.
"""
