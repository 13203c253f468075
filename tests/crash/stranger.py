"""Another user of the machine, who connects to the ports of a runner: `python stranger.py FOLDER ADDRESS…`.

An address is a TCP port or the path of a socket. On each address it tries every protocol that Runnel and Spark use,
without the secret and with a wrong one. It prints the response for each address and protocol in JSON.

If it is started by root, it becomes the user `nobody`. Otherwise it stays the same user, but does not know the
secret. FOLDER is for its temporary files.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  (the user nobody may not be able to import it later)
import json
import os
import pwd
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyspark.testing.utils  # noqa: F401  (nor this, which Py4J imports when it is first used)
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

_PATIENCE_SECONDS = 10.0
_REFUSED = "refused"
_BLOCK = "broadcast_1000000_piece0"
_SECRETS: dict[str, dict[str, str]] = {
    "without a secret": {},
    "with a wrong secret": {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "a guess",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    },
}


class SparkStranger:
    """A client that uses Spark's own classes, in a separate JVM."""

    def __init__(self, gateway: Any, authentication: dict[str, str]) -> None:
        self._gateway = gateway
        self._jvm = jvm = gateway.jvm
        self._conf = jvm.org.apache.spark.SparkConf(False)
        seconds = f"{_PATIENCE_SECONDS:.0f}s"
        for name, value in (
            authentication | {"spark.network.timeout": seconds, "spark.rpc.io.maxRetries": "0"}
        ).items():
            self._conf.set(name, value)
        default = getattr(jvm.org.apache.spark.SecurityManager, "$lessinit$greater$default$3")()
        nothing = jvm.scala.Option.empty()
        self._security = jvm.org.apache.spark.SecurityManager(self._conf, nothing, default)
        self._rpc = jvm.org.apache.spark.rpc.RpcEnv.create(
            "stranger", "127.0.0.1", 0, self._conf, self._security, True
        )

    def stop_executor(self, port: int) -> str:
        """Tell the local scheduler to stop, after which no task would run."""
        address = self._jvm.org.apache.spark.rpc.RpcAddress("127.0.0.1", port)
        endpoint = self._rpc.setupEndpointRef(address, "LocalSchedulerBackendEndpoint")
        boolean = self._singleton("scala.reflect.ClassTag").Boolean()
        endpoint.askSync(self._singleton("org.apache.spark.scheduler.local.StopExecutor"), boolean)
        return "no task runs any more"

    def plant_block(self, port: int) -> str:
        """Plant a block under the name of a future broadcast, which a task would deserialize, and read it."""
        level = self._jvm.org.apache.spark.storage.StorageLevel.MEMORY_ONLY_SER()
        tag = self._singleton("scala.reflect.ClassTag").Any()
        nothing = self._jvm.scala.Option.empty()
        metadata = self._jvm.org.apache.spark.network.netty.BlockReplicationMetadata(level, tag, nothing, False)
        serializer = self._jvm.org.apache.spark.serializer.JavaSerializer(self._conf).newInstance()
        serialized = serializer.serialize(metadata, tag).array()
        names = self._gateway.new_array(self._jvm.java.lang.String, 1)
        names[0] = _BLOCK
        protocol = self._jvm.org.apache.spark.network.shuffle.protocol
        self._send(port, protocol.UploadBlock("stranger", "driver", _BLOCK, serialized, b"planted"))
        self._send(port, protocol.OpenBlocks("stranger", "driver", names))
        return "a block was planted"

    def _send(self, port: int, message: Any) -> None:
        nothing = self._jvm.scala.Option.empty()
        transport = self._jvm.org.apache.spark.network.netty.SparkTransportConf.fromSparkConf(
            self._conf, "shuffle", 1, nothing, nothing
        )
        handler = self._jvm.org.apache.spark.network.server.NoOpRpcHandler()
        bootstraps = self._jvm.java.util.ArrayList()
        if self._security.isAuthenticationEnabled():
            bootstraps.add(
                self._jvm.org.apache.spark.network.crypto.AuthClientBootstrap(transport, "stranger", self._security)
            )
        context = self._jvm.org.apache.spark.network.TransportContext(transport, handler)
        client = context.createClientFactory(bootstraps).createClient("127.0.0.1", port)
        client.sendRpcSync(message.toByteBuffer(), int(_PATIENCE_SECONDS * 1000))

    def _singleton(self, name: str) -> Any:
        """Return the instance of a Scala object."""
        return self._jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)


def call_gateway(address: str) -> str:
    """Call a method through Py4J, which can run any code in the JVM."""
    answer = _exchange(address, b"c\nz:java.lang.System\nlineSeparator\ne\n")
    return f"the gateway answers {answer!r}" if answer.startswith((b"y", b"!y")) else _REFUSED


def run_worker(address: str) -> str:
    """Make the Python daemon fork a worker, which can run any code."""
    answer = _exchange(address, struct.pack("!i", 5) + b"guess")
    return "a worker takes commands" if answer.endswith(b"ok") else _REFUSED


def update_accumulator(address: str) -> str:
    """Send an accumulator update with a pickle, which can run any code. Spark acknowledges it with one byte."""
    pickled = b"cbuiltins\neval\n(S'1'\ntR."
    for token in (b"", b"x" * 43, b"x" * 44, b"x" * 64):
        update = token + struct.pack("!ii", 1, len(pickled)) + pickled
        if _exchange(address, update) == b"\x01":
            return "a pickle was loaded"
    return _REFUSED


def publish(address: str) -> str:
    """Publish over HTTP to a feed that is not open."""
    body = b'{"id": "planted", "title": "rock"}'
    request = b"POST /feeds/Wire/items HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = _exchange(address, request + b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
    return "an item was accepted" if b" 20" in answer.split(b"\r\n")[0] else _REFUSED


def _exchange(address: str, data: bytes) -> bytes:
    """Send bytes, and return the response until the other side closes, stops responding or rejects it."""
    answer = b""
    family = socket.AF_INET if address.isdigit() else socket.AF_UNIX
    with closing(socket.socket(family)) as connection:
        connection.settimeout(_PATIENCE_SECONDS)
        try:
            connection.connect(("127.0.0.1", int(address)) if address.isdigit() else address)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                answer += more
        except OSError:
            pass
    return answer


def _attempts(address: str, strangers: dict[str, SparkStranger]) -> Iterator[tuple[str, Callable[[], str]]]:
    for attempt in (call_gateway, run_worker, update_accumulator, publish):
        yield attempt.__name__, partial(attempt, address)
    if address.isdigit():
        for name, stranger in strangers.items():
            for spark_attempt in (stranger.plant_block, stranger.stop_executor):
                yield f"{spark_attempt.__name__} {name}", partial(spark_attempt, int(address))


def _answer(attempt: Callable[[], str]) -> str:
    try:
        return attempt()
    except Py4JJavaError as error:
        causes = [line.strip() for line in str(error).splitlines() if line.startswith("Caused by: ")]
        return f"{_REFUSED}: {(causes or [str(error)])[-1]}"


def become_nobody(folder: Path) -> None:
    """Drop root privileges if Spark's files can be read without them."""
    home = os.environ["SPARK_HOME"] = _find_spark_home()
    tempfile.tempdir = os.environ["TMPDIR"] = os.environ["HOME"] = str(folder)
    if os.geteuid() != 0:
        return
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    os.setgroups([])
    os.setegid(nobody.pw_gid)
    os.seteuid(nobody.pw_uid)
    can_start = os.access(Path(home, "bin", "spark-submit"), os.R_OK | os.X_OK, effective_ids=True)
    os.seteuid(0)
    os.setegid(0)
    if can_start:
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)


def main() -> None:
    """Try every protocol at every address."""
    folder, *addresses = sys.argv[1:]
    become_nobody(Path(folder))
    conf = SparkConf(loadDefaults=False).set("spark.driver.memory", "256m")
    gateway = launch_gateway(conf)
    strangers = {name: SparkStranger(gateway, authentication) for name, authentication in _SECRETS.items()}
    with ThreadPoolExecutor(16) as pool:
        pending = {
            (address, name): pool.submit(_answer, attempt)
            for address in addresses
            for name, attempt in _attempts(address, strangers)
        }
    answers: dict[str, dict[str, str]] = {address: {} for address in addresses}
    for (address, name), answer in pending.items():
        answers[address][name] = answer.result()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
