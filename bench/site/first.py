"""Time of each page when it is asked for the first time: python3 first.py SITE PAGES, with the addresses in PAGES one a line."""

import http.client
import sys
import time

site, pages = sys.argv[1], open(sys.argv[2]).read().split()
connection = http.client.HTTPConnection(site.removeprefix("http://"))
times_ms = []
for page in pages:
    began = time.perf_counter()
    connection.request("GET", page, headers={"accept-encoding": "gzip"})
    answer = connection.getresponse()
    answer.read()
    times_ms.append((time.perf_counter() - began) * 1e3)
    assert answer.status == 200, f"{page}: {answer.status}"
times_ms.sort()
at = lambda share: times_ms[min(len(times_ms) - 1, int(share * len(times_ms)))]
print(f"{len(times_ms)} pages, each once: 50 % {at(0.5):.2f} ms, 90 % {at(0.9):.2f} ms, 99 % {at(0.99):.2f} ms, longest {times_ms[-1]:.2f} ms")
