"""What Sphinx is told. It reads what `deploy.site.pages` has written; `version` is given on its command line."""

from pathlib import Path

project = "PushUp"
extensions = ["myst_parser"]
myst_heading_anchors = 6  # the anchors that GitHub gives to headings
html_theme = "furo"
html_title = "PushUp"
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}  # they would lead to the copies
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_use_index = False
html_copy_source = False
html_show_sourcelink = False
html_permalinks_icon = "#"
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
