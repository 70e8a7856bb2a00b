#!/usr/bin/env python3
"""Keeps configurations of gateways as the master of the shards says them.

    shardmaster_gateway.py --master 'host=master dbname=app user=gateway' \\
        --file /etc/nginx/conf.d/tenants.conf nginx default header:X-Tenant 127.0.0.1:8080 \\
        --check 'nginx -t' --reload 'nginx -s reload'

Each --file names a file and the arguments of shard_gateway_config() that it holds. At the
start, at each NOTIFY of new routing or topology, and every --look-every seconds (a
notification may have been missed) the files are made anew; after a look, whatever is
notified waits for --pause seconds. When one is different it takes
the place of the old one in one step; then --check has to succeed, else the old files come
back; then --reload tells the gateway. It goes on until it is stopped, whatever happens to
the master. Needs psycopg 3 (python3-psycopg).
"""

import argparse
import json
import os
import select
import shlex
import subprocess
import sys
import time

import psycopg

# Seconds.
COMMAND_LIMIT = 60
LONGEST_PAUSE = 30


def say(text):
    print(text, file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--master", required=True, metavar="CONNINFO")
    parser.add_argument(
        "--file", required=True, nargs="+", action="append", metavar=("FILE", "ARGUMENT"), dest="files"
    )
    parser.add_argument("--check", type=shlex.split, metavar="COMMAND")
    parser.add_argument("--reload", type=shlex.split, metavar="COMMAND", required=True)
    parser.add_argument("--look-every", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--pause", type=float, default=1, metavar="SECONDS")
    return parser.parse_args()


def run(command):
    """Whether the command succeeded; what it says goes where we say things."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=COMMAND_LIMIT).returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"{shlex.join(command)}: {error}")
        return False


def replace(path, text):
    """Nobody ever reads half a file, also after a power failure."""
    if text is None:
        os.unlink(path)
        return
    with open(f"{path}.new", "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def read(path):
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None


def wanted(cursor, files):
    """What each file is to hold."""
    texts = {}
    for path, *call in files:
        places = ", ".join(["%s"] * len(call))
        cursor.execute(f"SELECT shard_gateway_config({places})", call)
        texts[path] = cursor.fetchone()[0]
    return texts


def update(cursor, options, reload_due):
    """Returns whether a reload is still due."""
    texts = wanted(cursor, options.files)
    before = {path: read(path) for path in texts}
    changed = [path for path in texts if texts[path] != before[path]]
    if not changed and not reload_due:
        return False
    for path in changed:
        replace(path, texts[path])
    if options.check and not run(options.check):
        for path in changed:
            replace(path, before[path])
        say("the new configuration does not pass the check: the old one stays")
        return reload_due
    if run(options.reload):
        say("reloaded, with " + (", ".join(changed) or "what was there"))
        return False
    say("the gateway could not be told: once more in a while")
    return True


def concerns_us(payload):
    try:
        event = json.loads(payload)
    except ValueError:
        return False  # anybody may say anything on the channel
    return isinstance(event, dict) and event.get("event") in ("routing", "topology")


class News:
    """What the master has notified since the last look."""

    def __init__(self, connection):
        self.connection = connection
        self.is_there = False
        # Of what comes along with the answer to a statement.
        connection.add_notify_handler(lambda said: self.hear(said.payload))

    def hear(self, payload):
        self.is_there = self.is_there or concerns_us(payload)

    def listen(self):
        """Takes what has come by itself, without waiting."""
        said = self.connection.pgconn
        said.consume_input()
        while notification := said.notifies():
            self.hear(notification.extra.decode("utf-8", "replace"))

    def wait(self, longest):
        """Until there is news, or it is time for a look."""
        end = time.monotonic() + longest
        self.listen()
        while not self.is_there and (left := end - time.monotonic()) > 0:
            select.select([self.connection], [], [], left)
            self.listen()

    def rest(self, looked_at, pause):
        """Everybody may notify as often as he likes: what has come until now is one look."""
        time.sleep(max(0, looked_at + pause - time.monotonic()))
        self.listen()
        self.is_there = False


def follow(options, state):
    connection = psycopg.connect(
        options.master,
        autocommit=True,
        connect_timeout=10,
        tcp_user_timeout=30_000,
        keepalives_idle=30,
        keepalives_interval=10,
        keepalives_count=3,
    )
    try:
        connection.add_notice_handler(lambda said: say(f"{said.severity}:  {said.message_primary}"))
        news, cursor = News(connection), connection.cursor()
        cursor.execute("SET statement_timeout = '60s'; LISTEN shardmaster")
        while True:
            looked_at = time.monotonic()
            # Files may be newer than what the gateway has read: once at the start.
            state["reload_due"] = update(cursor, options, state["reload_due"])
            state["pause"] = 1
            news.wait(options.look_every)
            news.rest(looked_at, options.pause)
    finally:
        connection.close()


def main():
    options = arguments()
    state = {"reload_due": True, "pause": 1}
    while True:
        try:
            follow(options, state)
        except (psycopg.Error, OSError, UnicodeError) as error:
            say(f"{str(error).strip()}; again in {state['pause']} s")
        time.sleep(state["pause"])
        state["pause"] = min(2 * state["pause"], LONGEST_PAUSE)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
