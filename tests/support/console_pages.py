"""A browser without scripts: it keeps cookies, follows redirects, and sends the headers of browsers with each form."""

from __future__ import annotations

import re
from http.cookies import SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp


class Answer(NamedTuple):
    """An answer. `url`: of the page in the end, without the host."""

    status: int
    text: str
    headers: Any
    url: str

    @property
    def heading(self) -> str:
        """Return the text of the page's `h1`."""
        found = re.search(r"<h1[^>]*>(.*?)</h1>", self.text, re.S)
        assert found is not None, self.text[:500]
        return found[1].strip()


class Browser:
    """One visitor of the console at a port of this machine."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self.host = f"127.0.0.1:{port}"
        self.cookies: dict[str, str] = {}

    async def get(self, url: str, *, follow: bool = True, **headers: str) -> Answer:
        """Open a page."""
        return await self._ask("GET", url, None, headers, follow)

    async def post(
        self, url: str, *, follow: bool = True, headers: dict[str, str] | None = None, **form: Any
    ) -> Answer:
        """Send a form, as a page of the console does unless `headers` say something else."""
        own = {"Origin": f"http://{self.host}", "Sec-Fetch-Site": "same-origin"}
        return await self._ask("POST", url, urlencode(form, doseq=True), own if headers is None else headers, follow)

    async def sign_in(self, key: str) -> Answer:
        """Sign in with a key."""
        return await self.post("/console/sign-in", key=key)

    async def _ask(self, method: str, url: str, body: str | None, headers: dict[str, str], follow: bool) -> Answer:
        sent = dict(headers)
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body is not None:
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
        async with self._session.request(
            method, f"http://{self.host}{url}", data=body, headers=sent, allow_redirects=False
        ) as answer:
            text, status = await answer.text(), answer.status
            for line in answer.headers.getall("Set-Cookie", []):
                for name, morsel in SimpleCookie(line).items():
                    self.cookies.pop(name, None)
                    if morsel["max-age"] != "0":
                        self.cookies[name] = morsel.value
            found = Answer(status, text, answer.headers.copy(), url)
        if follow and status == 303:
            return await self._ask("GET", found.headers["Location"], None, {}, True)
        return found
