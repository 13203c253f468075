"""A webhook endpoint that checks signatures and answers the challenge, with a workspace that posts to it.

Run it with `python examples/webhook_endpoint.py`. The subscription belongs to an owner, so the endpoint has to
confirm before a message is posted to it.
"""

from __future__ import annotations

import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

import runnel

keys: list[str] = []
received: dict[str, Any] = {}


class Endpoint(BaseHTTPRequestHandler):
    """Verify every request, answer a challenge, and keep a message once per id."""

    def do_POST(self) -> None:
        """Handle one request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            message = Webhook(keys[0]).verify(body, dict(self.headers))
        except WebhookVerificationError:
            self.send_response(401)
            self.end_headers()
            return
        answer = b""
        if message["type"] == "runnel.confirmation":
            answer = json.dumps({"challenge": message["data"]["challenge"]}).encode()
        else:
            received[self.headers["webhook-id"]] = message
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing per request."""


def main() -> None:
    """Subscribe the endpoint, publish an item, run once, and show the message that arrived."""
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/hooks/runnel"
    with tempfile.TemporaryDirectory() as folder, runnel.connect(folder, allowed_addresses=("127.0.0.1",)) as engine:
        engine.execute("register feed Wire;")
        engine.owners.add("ann")
        ann = engine.acting_as("ann")
        (subscribed,) = ann.execute("subscribe to Wire output webhook :address", address=address)
        keys.append(subscribed.to_json()["key"])
        engine.publish("Wire", [{"id": "1", "title": "Muse on tour"}])
        engine.run(once=True)
        confirmation = ann.subscriptions()[0].confirmation
        print(f"waiting for confirmation: {confirmation is not None}")
    server.shutdown()
    server.server_close()
    (message,) = received.values()
    print(f"{message['type']}: {message['data']['items'][0]['attributes']['title'][0]}")


if __name__ == "__main__":
    main()
