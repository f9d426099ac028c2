"""An application at a real port."""

import threading
from contextlib import contextmanager

from permalign.explain.server.limits import Limits
from permalign.explain.server.listening import Server, bind, configuration


@contextmanager
def listening(app):
    """The port of an application that is served by a thread."""
    listener = bind("127.0.0.1", 0)
    server = Server(configuration(app, Limits()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
        assert not thread.is_alive()
