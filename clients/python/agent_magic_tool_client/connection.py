"""Requests and server-sent events, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from typing import Any, Iterator
from urllib.parse import urlsplit

#: A stream says at least every 25 seconds that it is alive.
SILENCE = 60.0
#: An API key, with its id.
KEY = re.compile(r"amt_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")


class ApiError(Exception):
    """The server refused a request. `code` is one of a fixed list, `hint` says how to go on."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        self.status = status
        self.code: str = error.get("code", "unknown")
        self.hint: str | None = error.get("hint")
        self.message: str = error.get("message", f"the server answered with the status {status}")
        super().__init__(f"{self.message} ({self.code})" + (f"; {self.hint}" if self.hint else ""))


def id_of(key: str, name: str = "key") -> str:
    """The part of an API key that is no secret. If it is no API key, raises a `ValueError` that does not contain it."""
    found = KEY.fullmatch(key) if isinstance(key, str) else None
    if found is None:
        raise ValueError(f"`{name}` is no whole API key, which is `amt_`, 8 digits, `_` and 43 characters")
    return found[1]


class Connection:
    """Where the server is, and the API key that is shown to it, if there is one."""

    def __init__(self, url: str, key: str | None, context: ssl.SSLContext | None = None) -> None:
        self.url, self.key, self.context = urlsplit(url), key, context
        if self.url.scheme not in ("http", "https") or not self.url.hostname:
            raise ValueError(f"{url!r} is not the URL of a server, like http://127.0.0.1:8790")
        self.port = self.url.port  # Raises `ValueError` if it is no number.
        if key is not None:
            id_of(key)

    def _open(self, timeout: float | None) -> http.client.HTTPConnection:
        host, port = self.url.hostname or "", self.port
        if self.url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self.context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        headers = dict(headers)
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise error_of(response.status, response.read())
        return response

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] = {}, timeout: float | None = 60.0
    ) -> Any:
        """Sends a request, and returns the object that it answers. Raises `ApiError`, or `OSError` if the server is not there."""
        connection = self._open(timeout)
        try:
            text = self._send(connection, method, path, body, headers).read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"the server did not answer: {error!r}") from error
        finally:
            connection.close()
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise ConnectionError("the server's answer is not JSON; is this URL that of `agent-magic-tool serve`?") from error
        if not isinstance(answer, dict):
            raise ConnectionError("the server's answer is no object; is this URL that of `agent-magic-tool serve`?")
        return answer

    def stream(self, path: str, headers: dict[str, str] = {}) -> Stream:
        """Opens a stream of events."""
        connection = self._open(SILENCE)
        try:
            connection.connect()
            # Kept: a stream is closed by another thread than the one that reads.
            stream_socket = connection.sock
            response = self._send(connection, "GET", path, None, headers)
            if response.headers.get_content_type() != "text/event-stream":
                raise ConnectionError("the server's answer is no stream; is this URL that of `agent-magic-tool serve`?")
            return Stream(response, stream_socket)
        except http.client.HTTPException as error:
            connection.close()
            raise ConnectionError(f"the server did not answer: {error!r}") from error
        except BaseException:
            connection.close()
            raise


class Stream:
    """Server-sent events, as `(id, name, data)`. Ends quietly when it is closed, the server is gone or data is not JSON."""

    def __init__(self, response: http.client.HTTPResponse, stream_socket: Any) -> None:
        self.response, self.socket = response, stream_socket

    def __iter__(self) -> Iterator[tuple[str | None, str, Any]]:
        last_id, name, data = None, "message", []
        try:
            for line in self.response:
                text = line.decode().rstrip("\r\n")
                field, _, value = text.partition(":")
                value = value.removeprefix(" ")
                if field == "id":
                    last_id = value
                elif field == "event":
                    name = value
                elif field == "data":
                    data.append(value)
                elif not text:
                    if data:
                        yield last_id, name, json.loads("\n".join(data))
                    name, data = "message", []
        except (OSError, http.client.HTTPException, ValueError):
            return
        finally:
            self.close()

    def close(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()


def error_of(status: int, body: bytes) -> ApiError:
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        error = {}
    return ApiError(status, error if isinstance(error, dict) else {})
