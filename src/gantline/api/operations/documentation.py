"""Documentation: the OpenAPI document, its page, and a page for every type of problem.

The pages are plain HTML without any script.
"""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cached_property
from html import escape
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from gantline.api.call import Call
from gantline.api.json_response import encode
from gantline.api.problems import KINDS, PROBLEM_PATH, ApiCode, Kind, Refused

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1f24;background:#fff}"
    "h2{margin-top:2.5rem;border-bottom:1px solid #d0d7de}"
    "code{font:14px/1.4 ui-monospace,monospace;background:#f3f5f7;padding:0 .25em}"
    "details{margin:.5rem 0;padding:.5rem .75rem;border:1px solid #d0d7de;border-radius:6px}"
    "summary{cursor:pointer}table{border-collapse:collapse;margin:.5rem 0}"
    "td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0}"
    "details{overflow-x:auto}details table{scroll-margin-top:7rem}"
    "@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}"
    "code{background:#21262d}details,h2{border-color:#30363d}a{color:#79c0ff}}"
)
_STYLE_HASH: Final = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "cache-control": "public, max-age=3600",
}


_STARTS: Final = {
    "/api/docs": "the API's documentation",
    "/api/jobs": "the jobs, newest first",
    "/api/queues": "the queues, and what waits in them",
    "/api/dead-letters": "the jobs that failed for good",
    "/api/job-types": "the types of jobs, with the schemas of their payloads",
    "/readyz": "health",
}


class Documentation:
    """For everybody: it shows nothing about anybody's jobs or types."""

    def __init__(self, document: Callable[[], Mapping[str, Any]]) -> None:
        self._document = document

    @cached_property
    def _encoded(self) -> bytes:
        return encode(self._document())

    async def openapi(self, call: Call) -> Response:
        headers = {"content-type": "application/json", "cache-control": "public, max-age=3600"}
        return Response(self._encoded, headers=headers)

    async def page(self, call: Call) -> Response:
        return _documentation_page(self._document(), call.root)

    async def problems(self, call: Call) -> Response:
        return _problems_page(call.root)

    async def problem(self, call: Call) -> Response:
        for kind in KINDS.values():
            if kind.slug == call.path_params["problem"]:
                return _problem_page(kind, call.root)
        raise Refused(ApiCode.NOT_FOUND, "There is no such type of problem.")


async def start_page(request: Request) -> Response:
    """For a developer who opens the address in a browser; it shows nothing but links."""
    root = escape(request.scope.get("root_path", ""))
    links = "".join(
        f'<li><a href="{root}{path}">{path}</a>: {what}</li>' for path, what in _STARTS.items()
    )
    page = _page("Gantline", f"<ul>{links}</ul>")
    page.headers["cache-control"] = "no-store"  # another server may be here tomorrow
    return page


# -- pages ----------------------------------------------------------------------------------------


def _page(title: str, body: str) -> HTMLResponse:
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return HTMLResponse(text, headers=_HEADERS)


def _problem_page(kind: Kind, root: str) -> HTMLResponse:
    again = (
        "The same request may succeed later; <code>Retry-After</code> says when."
        if kind.retryable
        else "The same request will fail again."
    )
    return _page(
        kind.title,
        f"<p><code>{escape(kind.code)}</code>, status {kind.status}.</p>"
        f"<p>{_text(kind.advice)}</p><p>{again}</p>"
        f'<p><a href="{escape(root)}/api/problems">All problems</a></p>',
    )


def _problems_page(root: str) -> HTMLResponse:
    rows = "".join(
        f'<tr><td><a href="{escape(root + PROBLEM_PATH + kind.slug)}">{escape(kind.code)}</a></td>'
        f"<td>{kind.status}</td><td>{escape(kind.title)}</td></tr>"
        for kind in KINDS.values()
    )
    return _page("Problems", f"<table>{rows}</table>")


def _documentation_page(document: Mapping[str, Any], root: str) -> HTMLResponse:
    """All operations, each to be unfolded."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = operation["tags"][0]
            by_tag.setdefault(tag, []).append(_operation(method.upper(), path, operation))
    parts = [
        f"<p>{escape(document['info']['description'])}</p>",
        f'<p><a href="{escape(root)}/api/openapi.json">The same as OpenAPI 3.1</a> · '
        f'<a href="{escape(root)}/api/problems">All problems</a></p>',
    ]
    for tag, operations in by_tag.items():
        parts.append(f"<h2>{escape(tag.capitalize())}</h2>{''.join(operations)}")
    parts.append("<h2>Documents</h2>")
    for name, schema in document["components"]["schemas"].items():
        parts.append(_schema(name, schema))
    return _page(f"{document['info']['title']} {document['info']['version']}", "".join(parts))


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{one['in']}</td>"
        f"<td>{_type(one['schema'])}</td><td>{_text(one.get('description', ''))}</td></tr>"
        for one in operation["parameters"]
    ]
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        rows.append(f"<tr><td>body</td><td></td><td>{_type(schema)}</td><td></td></tr>")
    answers = [
        f"<tr><td>{status}</td><td>{_content(answer)}</td>"
        f"<td>{escape(answer['description'])}</td></tr>"
        for status, answer in operation["responses"].items()
    ]
    return (
        f"<details><summary><code>{method} {escape(path)}</code> "
        f"{escape(operation['summary'])}</summary>"
        f"<table>{''.join(rows)}</table><table>{''.join(answers)}</table></details>"
    )


def _content(answer: Mapping[str, Any]) -> str:
    return "".join(_type(one["schema"]) for one in answer.get("content", {}).values())


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(one)}</td></tr>"
        for field, one in schema.get("properties", {}).items()
    )
    if "enum" in schema:
        rows = f"<tr><td>{_type(schema)}</td></tr>"
    # What is within is unfolded by a browser that is led there; the fold itself is not.
    return (
        f"<details><summary><code>{escape(name)}</code> "
        f"{_text(schema.get('description', ''))}</summary>"
        f'<table id="{escape(name)}">{rows}</table></details>'
    )


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(escape(str(one)) for one in schema["enum"])
    kind = escape(str(schema.get("format") or schema.get("type") or "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [
        f"{sign} {schema[name]}"
        for name, sign in (("minimum", "≥"), ("maximum", "≤"), ("maxLength", "at most"))
        if name in schema
    ]
    return f"{kind} {', '.join(bounds)}".rstrip()


def _text(text: str) -> str:
    """Prose in which backticks mark code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
