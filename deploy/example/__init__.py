"""A community that asks and answers: an ordinary Flask application whose pages are live."""
