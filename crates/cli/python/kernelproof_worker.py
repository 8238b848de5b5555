"""What the workers of `kernelproof` share: the tensors of the operation, and answering requests.

Requests arrive on stdin and answers leave on stdout, one JSON object a line. An answer with "error" says what went
wrong, in the kind "kind" where there is one. A worker ends when stdin does, and with its parent.
"""

import ctypes
import json
import os
import signal
import sys

INPUTS = (
    "grad_query", "grad_key", "grad_value", "hidden_states", "q_weight", "k_weight", "v_weight", "cos", "sin",
)
OUTPUTS = ("grad_hidden_states", "grad_q_weight", "grad_k_weight", "grad_v_weight")


def shapes(sizes):
    """Shape of each input and output; `sizes` has the letters B, S, E, H, K, D, R."""
    b, s, e, h, k, d, r = (sizes[letter] for letter in "BSEHKDR")
    query, key = (h * d, e), (k * d, e)
    return {
        "grad_query": (b, h, s, d), "grad_key": (b, k, s, d), "grad_value": (b, k, s, d),
        "hidden_states": (b, s, e), "q_weight": query, "k_weight": key, "v_weight": key,
        "cos": (b, s, r), "sin": (b, s, r),
        "grad_hidden_states": (b, s, e), "grad_q_weight": query, "grad_k_weight": key, "grad_v_weight": key,
    }


class Problem(Exception):
    """An error whose kind the parent knows."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


def end_with_parent():
    """Ends this process when the one that started it is gone, however it went. Linux only."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGKILL))


def serve(actions):
    """Answers requests until stdin ends. `actions` maps the request's "do" to a function of the request."""
    # Ctrl-C reaches the whole process group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    answers = os.dup(1)
    # What a library prints must not be taken for an answer.
    os.dup2(2, 1)
    loads, dumps, write = json.loads, json.dumps, os.write
    for line in sys.stdin:
        request = loads(line)
        try:
            answer = actions[request["do"]](request)
        except Problem as error:
            answer = {"error": str(error), "kind": error.kind}
        except BaseException as error:  # Whatever it is, the parent must hear of it.
            answer = {"error": f"{type(error).__name__}: {error}"[:4000]}
        write(answers, (dumps(answer) + "\n").encode())
