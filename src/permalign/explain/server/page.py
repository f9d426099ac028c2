"""The page of the explorer, with its style sheets and its scripts, and the documentation of the API."""

from collections.abc import Callable
from importlib.resources import files

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse

from permalign.explain.server.docs_page import docs_page

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def add_page(app: FastAPI) -> None:
    """Serve every file under its own name. All are read now, so no request can reach the file system."""
    folders = (files("permalign.explain.render") / "static", files("permalign.explain.server") / "static")
    static = {file.name: file.read_bytes() for folder in folders for file in folder.iterdir()}

    def serve(name: str) -> Callable[[], Response]:
        media_type = MEDIA_TYPES[name[name.rindex(".") :]]
        return lambda: Response(static[name], media_type=media_type)

    app.get("/", include_in_schema=False)(serve("explorer.html"))
    for name in static:
        app.get(f"/static/{name}", include_in_schema=False)(serve(name))

    @app.get("/api/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))
