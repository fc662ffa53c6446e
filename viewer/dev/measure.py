#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a page in a real browser: time to the first picture, and from a reader's act to the next one.

    measure.py page.html
    make_sample.py --allocations 100000 --page big.html && measure.py big.html

The page tells its times to a server of this program, since a headless browser's own clock can be virtual.
"""

import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

SCRIPT = """
const tell = (result) => navigator.sendBeacon('/result', JSON.stringify(result));
addEventListener('error', (event) => tell({error: event.message}));
const painted = () => new Promise((go) => requestAnimationFrame(() => setTimeout(go, 0)));
const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const $ = (selector) => document.querySelector(selector);
const told = {times: {}};
async function time(name, acts) {
  const times = [];
  for (const act of acts) {
    const from = performance.now();
    act();
    await painted();
    times.push(performance.now() - from);
  }
  told.times[name] = [median(times), Math.max(...times)];
}
const pointer = (element, type, x, y) => element.dispatchEvent(new PointerEvent(type,
  {bubbles: true, clientX: x, clientY: y, button: 0, pointerId: 1}));
const typed = (text) => () => { $('.search input').value = text; $('.search input').dispatchEvent(new Event('input')); };
(async () => {
  await painted();
  told.times['first paint'] = [performance.now(), performance.now()];
  Element.prototype.setPointerCapture = () => {};
  const canvas = $('.timeline');
  const box = canvas.getBoundingClientRect();
  const click = (share) => () => {
    const x = box.left + 80 + share * (box.width - 100);
    pointer(canvas, 'pointerdown', x, box.top + 100);
    pointer(canvas, 'pointerup', x, box.top + 100);
  };
  const steps = [...Array(15).keys()].map((step) => (step + 0.5) / 15);
  await time('click on the timeline', steps.map(click));
  await time('hover over the timeline', steps.map((share) => () =>
    pointer(canvas, 'pointermove', box.left + 80 + share * (box.width - 100), box.top + 100)));
  const chips = [...document.querySelectorAll('.legend-line button')];
  await time('switch a category', chips.map((chip) => () => chip.click()));
  $('.clear')?.click();
  await time('type into the search', ['f', 'fo', 'for', 'forw', ''].map(typed));
  await time('turn the icicle', [...document.querySelectorAll('[aria-label="Icicle"] .segment-button')].map((button) => () => button.click()));
  await time('wheel into the timeline', steps.map(() => () => canvas.dispatchEvent(new WheelEvent('wheel',
    {deltaY: -100, clientX: box.left + 300, bubbles: true, cancelable: true}))));
  tell(told);
})();
"""


def main():
    page = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    page = page.replace("</body>", f"<script>{SCRIPT}</script></body>")
    answers, done = [], threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = page.encode() if self.path == "/" else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as profile:
        browser = subprocess.Popen(
            [shutil.which("chromium") or "google-chrome", "--headless", "--no-sandbox", "--disable-gpu",
             "--window-size=1280,1600", f"--user-data-dir={profile}", "--remote-debugging-port=0",
             f"http://127.0.0.1:{server.server_port}/"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        finished = done.wait(120)
        browser.terminate()
        browser.wait()
    if not finished or "error" in answers[0]:
        sys.exit(f"the page did not finish: {answers}")
    print(f"{len(page) / 2**20:.1f} MiB of page")
    for name, (median, worst) in answers[0]["times"].items():
        print(f"{name:26} {median:8.1f} ms, worst {worst:8.1f} ms")


if __name__ == "__main__":
    main()
