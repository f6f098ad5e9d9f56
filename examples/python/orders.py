#!/usr/bin/env python3
"""An order service without a framework: one call creates one order, however often it is sent.

The key is reserved in a short transaction of its own. Then the order, the message to the warehouse
and the key's outcome are committed together, so a crash leaves either all of them or none.

    orders.py --key order-1 --item book --create-table

Needs psycopg 3 and a database that firstwrite has migrated. The answer is printed as JSON; the exit
status is 0 for an answer and 3 for a refusal. `--die-at` ends the process with SIGKILL at a step, to
show that sending the same again is safe.
"""

import argparse
import base64
import hashlib
import json
import os
import signal
import sys

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

STEPS = ["after-reserve", "after-order", "after-enqueue", "after-complete", "before-commit", "after-commit"]

# Another attempt has taken over (FW001), or another transaction has completed the key (FW002), such as an earlier
# try of this one whose COMMIT was not acknowledged. The order is rolled back, and the first answer stands.
ENDED_ELSEWHERE = ("FW001", "FW002")


def main():
    options = parse_arguments()

    def reached(step):
        if options.die_at == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with psycopg.connect(options.database, autocommit=True, row_factory=dict_row) as connection:
        if options.create_table:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS orders (number bigint GENERATED ALWAYS AS IDENTITY, item text NOT NULL)"
            )
        verdict = reserve(connection, options)
        reached("after-reserve")
        if verdict["verdict"] in ("fresh", "take over"):
            try:
                answer = create_order(connection, options, verdict["fence"], reached)
            except psycopg.Error as error:
                if error.sqlstate not in ENDED_ELSEWHERE:
                    raise
                reply_as_it_stands(connection, options)
                return
            reached("after-commit")
            reply(answer["status"], answer["headers"], answer["body"], replayed=False)
        elif verdict["verdict"] == "replay":
            reply(verdict["status"], verdict["headers"], verdict["body"], replayed=True)
        else:
            print(json.dumps({"refused": verdict["verdict"]}))
            sys.exit(3)


def reserve(connection, options):
    """Reserves the key, and commits before anything else is done: a rival waits for nobody."""
    fingerprint = hashlib.sha256(json.dumps({"item": options.item}, sort_keys=True).encode()).digest()
    statement = sql.SQL(
        "SELECT * FROM {}.reserve(%(tenant)s, %(key)s, %(fingerprint)s, operation => 'create order',"
        # Running again is safe: the order and the outcome are committed together.
        " on_lost_answer => 'resend')"
    ).format(sql.Identifier(options.schema))
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '2s'")
        arguments = {"tenant": options.tenant, "key": options.key, "fingerprint": fingerprint}
        return connection.execute(statement, arguments).fetchone()


def create_order(connection, options, fence, reached):
    """The order, its message and the key's outcome, in one transaction."""
    firstwrite = sql.Identifier(options.schema)
    with connection.transaction():
        order = connection.execute(
            "INSERT INTO orders (item) VALUES (%s) RETURNING number", [options.item]
        ).fetchone()
        reached("after-order")
        body = json.dumps({"order": order["number"], "item": options.item}).encode()
        connection.execute(
            sql.SQL("SELECT {}.enqueue(%s, %s, %s, 'pack', 'warehouse', %s)").format(firstwrite),
            [options.tenant, options.key, fence, body],
        )
        reached("after-enqueue")
        headers = [["content-type", "application/json"], ["location", f"/orders/{order['number']}"]]
        # Raises if the attempt ended elsewhere; the order is then rolled back.
        connection.execute(
            sql.SQL("SELECT {}.complete(%s, %s, %s, 201, %s, %s)").format(firstwrite),
            [options.tenant, options.key, fence, Jsonb(headers), body],
        )
        reached("after-complete")
        connection.execute("SELECT 1")
        reached("before-commit")
    return {"status": 201, "headers": headers, "body": body}


def reply_as_it_stands(connection, options):
    statement = sql.SQL("SELECT * FROM {}.status(%s, %s)").format(sql.Identifier(options.schema))
    stands = connection.execute(statement, [options.tenant, options.key]).fetchone()
    if stands is None or stands["state"] != "completed":
        print(json.dumps({"refused": "in progress"}))
        sys.exit(3)
    reply(stands["status"], stands["headers"], stands["body"], replayed=True)


def reply(status, headers, body, replayed):
    answer = {"status": status, "headers": headers, "body": base64.b64encode(body).decode(), "replayed": replayed}
    print(json.dumps(answer))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default="", help="connection string; libpq's environment if empty")
    parser.add_argument("--schema", default="firstwrite", help="the schema that firstwrite was migrated into")
    parser.add_argument("--tenant", default="acme")
    parser.add_argument("--key", required=True, help="what the client calls this order")
    parser.add_argument("--item", required=True)
    parser.add_argument("--create-table", action="store_true", help="create the table orders if it is missing")
    parser.add_argument("--die-at", choices=STEPS, help="end the process with SIGKILL at this step")
    return parser.parse_args()


if __name__ == "__main__":
    main()
