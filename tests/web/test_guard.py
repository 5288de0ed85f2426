"""Who may read the page: the name of the server, the token, and what a request may be."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.web.conftest import TOKEN, Serve
from tests.web.fake_job import slow_job


@pytest.mark.parametrize(
    "name", ["127.0.0.1", "localhost:1234", "LOCALHOST", "[::1]:80", "[::1]", "127.0.0.2", "localhost:"]
)
def test_names_of_loopback_are_served(serve: Serve, name: str) -> None:
    assert serve(slow_job()).get("/jobs", Host=name).status == 200


@pytest.mark.parametrize("name", ["example.com", "127.0.0.1.example.com", "", "192.168.0.1", "[::2]:80", "localhost.x"])
def test_other_names_are_refused(serve: Serve, name: str) -> None:
    reply = serve(slow_job()).get("/jobs", Host=name)
    assert reply.status in {400, 421}
    assert b"orders" not in reply.body


@pytest.mark.parametrize(
    "name",
    ["[::1", "::1", "[::1]x", "[::1]:80:90", "[[::1]]", "[127.0.0.1]", "[localhost]:80", "127.0.0.1]",
     "127.0.0.1:80:90", "127.0.0.1:x", "localhost:+80", ":80", "localhost, example.com"],
)  # fmt: skip
def test_malformed_names_are_refused(serve: Serve, name: str) -> None:
    reply = serve(slow_job()).get("/jobs", Host=name)
    assert reply.status == 400
    assert b"orders" not in reply.body


def test_a_server_on_all_addresses_takes_addresses_and_no_foreign_names(serve: Serve) -> None:
    served = serve(slow_job(), host="0.0.0.0", token=TOKEN)
    bearer = f"Bearer {TOKEN}"
    assert served.get("/jobs", Host="192.168.0.1:80", Authorization=bearer).status == 200
    assert served.get("/jobs", Host="example.com", Authorization=bearer).status == 421


def test_the_machines_names_are_looked_up_once_and_not_while_requests_wait(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS may take seconds, in which the event loop would answer nobody."""
    loops: list[object] = []

    def full_name() -> str:
        loops.append(asyncio._get_running_loop())
        return "Driver.example.com"

    monkeypatch.setattr("socket.getfqdn", full_name)
    served = serve(slow_job(), host="0.0.0.0", token=TOKEN, fresh=True)
    names = ["driver.example.com:80", "example.com", "192.168.0.1", socket.gethostname()]
    answers = [served.get("/jobs", Host=name, Authorization=f"Bearer {TOKEN}").status for name in names]
    assert answers == [200, 421, 200, 200]
    assert loops == [None]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_only_get_is_served(serve: Serve, method: str) -> None:
    reply = serve(slow_job()).get("/jobs", method=method)
    assert (reply.status, reply.headers["allow"]) == (405, "GET")


def test_a_request_has_no_body_and_no_long_address(serve: Serve) -> None:
    served = serve(slow_job())
    assert served.get("/jobs", body=b"x").status == 413
    assert served.get("/jobs?" + "x" * 5000).status == 414
    assert served.get("/jobs", X_Long="x" * (20 << 10)).status == 431


def test_every_answer_protects_the_page_in_the_browser(serve: Serve) -> None:
    served = serve(slow_job(), token=TOKEN)
    for path in ("/", "/jobs", "/nothing"):
        headers = served.get(path, Authorization=f"Bearer {TOKEN}", Origin="http://example.com").headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    assert "content-security-policy" in served.get("/jobs").headers


def test_the_report_has_a_policy_of_its_own_without_scripts(serve: Serve) -> None:
    served = serve(slow_job(), token=TOKEN)
    bearer = f"Bearer {TOKEN}"
    assert served.get("/report", Authorization=bearer).status == 404
    served.board.report = b"<style>p { color: red }</style><p>fast"
    assert served.get("/report").status == 401
    reply = served.get("/report", Authorization=bearer)
    assert reply.body == served.board.report
    (policy,) = reply.headers.get_all("content-security-policy") or []
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "script-src" not in policy
    assert reply.headers["cache-control"] == "no-store"


def test_without_the_token_nothing_is_told(serve: Serve) -> None:
    served = serve(slow_job(), token=TOKEN)
    for path in ("/", "/jobs", "/metrics", "/openapi.json", "/jobs/1f-0a0b0c0d/events"):
        assert served.get(path).status == 401
    assert served.get("/jobs", Authorization="Bearer wrong").status == 401
    assert served.get("/jobs", Authorization=f"Basic {TOKEN}").status == 401
    assert served.get("/jobs?token=wrong").status == 401
    assert served.get("/jobs", Cookie=f"headgate_{served.server.port}={TOKEN}").status == 401
    assert served.get("/jobs", Authorization="Bearer \xff").status == 401


def test_a_token_is_given_in_a_header(serve: Serve) -> None:
    assert serve(slow_job(), token=TOKEN).get("/jobs", Authorization=f"Bearer {TOKEN}").status == 200


def test_a_token_in_the_address_becomes_a_cookie(serve: Serve) -> None:
    served = serve(slow_job(), token=TOKEN)
    entered = served.get(f"/jobs?token={TOKEN}&x=1")
    assert (entered.status, entered.headers["location"]) == (303, "/jobs?x=1")
    cookie = entered.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert served.get("/jobs", Cookie=cookie.partition(";")[0]).status == 200


@pytest.mark.parametrize(
    "header", ['prefs={"a":1}; %s', "%s; user=Jane Doe", "a=b;%s", 'q="x;%s', "=; ;%s;", "caf\xe9=1; %s"]
)
def test_cookies_of_other_programs_on_the_host_lock_nobody_out(serve: Serve, header: str) -> None:
    served = serve(slow_job(), token=TOKEN)
    cookie = served.get(f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    assert served.get("/jobs", Cookie=header % cookie).status == 200
    name, _, value = cookie.partition("=")
    for wrong in (f"x{cookie}", f"{name}={value[:-1]}", f"{name}={value}x", f"{name}=", name, f"x={value}"):
        assert served.get("/jobs", Cookie=header % wrong).status == 401


def test_a_token_leads_to_no_other_server(serve: Serve) -> None:
    served = serve(slow_job(), token=TOKEN)
    assert served.get(f"//example.com/?token={TOKEN}").headers["location"] == "/example.com/"
