"""The documentation as a site: `make site`, or `python -m deploy.site` (docs/internals/decisions/0028-a-site.md).

`pages` copies the Markdown files of the repository to where Sphinx reads them, and leads links to what is not on the
site to the forge. `build` has Sphinx make the site, and puts it beside those of former releases. `sphinx/` is what
Sphinx is told. `demo/` records the animation of the first page.
"""
