"""Shows how trainings go, in TensorBoard. Arguments go to TensorBoard: python -m tcnaps_suite.workflow.watch

Requests must name this machine. Otherwise another site could let its own name resolve to this machine and read along
(DNS rebinding).
"""

import socket
from collections.abc import Callable, Iterable

from absl import app
from tensorboard import main_lib, program

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", socket.gethostname().lower(), socket.getfqdn().lower())


def local_only(application: Callable) -> Callable:
    """The WSGI application, which answers 403 where a request names another host."""

    def answer(environment: dict, start_response: Callable) -> Iterable[bytes]:
        host = environment.get("HTTP_HOST", "").lower()
        if host in LOCAL_NAMES or host.rpartition(":")[0] in LOCAL_NAMES:
            return application(environment, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        return [b"This server answers only to the names of its machine.\n"]

    return answer


def main() -> None:
    main_lib.global_init()
    serve = program.create_port_scanning_werkzeug_server
    tensorboard = program.TensorBoard(server_class=lambda application, flags: serve(local_only(application), flags))
    app.run(tensorboard.main, flags_parser=tensorboard.configure)


if __name__ == "__main__":
    main()
