"""The limit on how often a client may send requests."""

from permalign.explain.server.rate_limit import RateLimiter


def test_old_clients_are_forgotten():
    limiter = RateLimiter(burst=1, rate=1, max_clients=3)
    for client in range(100):
        limiter.take(str(client))
    assert len(limiter._buckets) == 3
