# The clients of test_watch.sh: what `watch --http` answers on PORT about RUN, to good requests and to bad ones: of a
# megabyte, slow, 200 at once.
import http.client, socket, sys, threading

port, run = int(sys.argv[1]), sys.argv[2]


def ask(method, path, headers=None, body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        return r.status, r.headers, r.read().decode()
    finally:
        c.close()


def raw(data):
    """The first line of what comes back; "" if the connection was closed."""
    s = socket.create_connection(("127.0.0.1", port), timeout=600)
    try:
        s.sendall(data)
        return s.recv(4096).split(b"\r\n")[0].decode()
    except (ConnectionResetError, BrokenPipeError):
        return ""
    finally:
        s.close()


status, headers, page = ask("GET", "/")
assert status == 200 and "<!doctype html>" in page and "2 lines" not in page, page[:300]
assert headers["Content-Type"] == "text/html; charset=utf-8" and headers["X-Content-Type-Options"] == "nosniff"
assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
assert headers["Cache-Control"] == "no-store" and "Refresh" not in headers, headers  # the run has ended
assert "<script" not in page
status, headers, text = ask("GET", "/metrics")
assert status == 200 and headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
assert text.endswith("# EOF\n") and f'ndparallel_step{{run="{run}"}} 6\n' in text, text
status, headers, body = ask("HEAD", "/metrics")
assert status == 200 and body == "" and int(headers["Content-Length"]) == len(text)
for path in ("/../etc/passwd", "/%2e%2e/etc/passwd", "/job.yaml", "//", "/metrics/"):
    assert ask("GET", path)[0] == 404, path
for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
    status, headers, body = ask(method, "/")
    assert status == 405 and headers["Allow"] == "GET, HEAD", method
assert ask("GET", "/", {"Host": "evil.example"})[0] == 403
assert ask("GET", "/", {"Host": f"localhost:{port}"})[0] == 200

megabyte = b"a" * (1 << 20)
for request in (b"GET /" + megabyte + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + megabyte + b"\r\n\r\n",
                b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n" + megabyte,
                megabyte, b"\xff nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
    line = raw(request)
    assert not line or line.split()[1][0] == "4", line

# 200 at once, beside 50 that say nothing and one that does not read.
silent = [socket.create_connection(("127.0.0.1", port)) for i in range(50)]
silent[0].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
silent[1].sendall(b"GET / HT")
codes = []
threads = [threading.Thread(target=lambda: codes.append(ask("GET", "/metrics")[0])) for i in range(200)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert codes == [200] * 200, codes
print("all is well")
