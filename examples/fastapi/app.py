"""A payments API behind `firstwrite gateway` that finishes the job itself.

It shares the gateway's PostgreSQL. The payment and its answer are written in one transaction: whatever happens
to the answer on its way, the client's retry gets it.

    DATABASE=postgres://app@127.0.0.1/shop uvicorn app:app --port 3000
    firstwrite gateway --upstream http://127.0.0.1:3000 --tenants authorization \
        --store postgres://app@127.0.0.1/shop

With DIE=after-commit in its environment it kills itself between the commit and the answer, to show that. With
LOSE=commit-answer it behaves as if the connection broke after the commit, and repeats its transaction.
"""

import json
import os
import signal

import psycopg
from fastapi import FastAPI, Request, Response

DATABASE = os.environ["DATABASE"]

# `complete` refuses: another attempt has taken over (FW001), or another transaction has completed the key (FW002),
# such as the first try of this one whose COMMIT was not acknowledged.
ENDED_ELSEWHERE = ("FW001", "FW002")

app = FastAPI()

with psycopg.connect(DATABASE) as setup:
    setup.execute("CREATE TABLE IF NOT EXISTS payments "
                  "(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount bigint NOT NULL)")


@app.post("/payments")
async def pay(request: Request):
    # What the gateway says of the attempt. Nobody else can: it drops these headers from clients.
    attempt = [request.headers[f"firstwrite-{name}"] for name in ("tenant", "key", "fence")]
    order = await request.json()
    try:
        number = await commit_payment(attempt, order)
    except psycopg.OperationalError:
        # The connection was lost, perhaps after the commit. Running the transaction again is safe: if it was
        # committed, `complete` refuses the second one.
        number = await commit_payment(attempt, order)
    if number is None:
        return await first_answer(attempt)
    if os.environ.get("DIE") == "after-commit":
        os.kill(os.getpid(), signal.SIGKILL)
    body, headers = answer_to(number, order)
    return Response(body, 201, dict(headers))


async def commit_payment(attempt, order):
    """Commits the payment together with its answer. None if the attempt ended in another transaction."""
    tenant, key, fence = attempt
    try:
        async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
            row = await connection.execute(
                "INSERT INTO payments (amount) VALUES (%s) RETURNING id", [order["amount"]])
            number = (await row.fetchone())[0]
            body, headers = answer_to(number, order)
            # In the same transaction. If this raises, the payment is undone.
            await connection.execute(
                "SELECT firstwrite.complete(%s, %s, %s, 201, %s::jsonb, %s::bytea)",
                [tenant, key, int(fence), json.dumps(headers), body])
    except psycopg.Error as error:
        if error.sqlstate in ENDED_ELSEWHERE:
            return None
        raise
    if os.environ.get("LOSE") == "commit-answer":
        raise psycopg.OperationalError("the answer to COMMIT was lost")
    return number


async def first_answer(attempt):
    """What stands under the key: the answer that was committed first, or a request to come back."""
    tenant, key, _fence = attempt
    async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
        rows = await connection.execute(
            "SELECT status, headers, body FROM firstwrite.status(%s, %s) WHERE state = 'completed'", [tenant, key])
        row = await rows.fetchone()
    if row is None:
        # Another attempt is at work on the key, or it was freed.
        return Response(status_code=503, headers={"retry-after": "1"})
    status, headers, body = row
    return Response(body, status, dict(headers))


def answer_to(number, order):
    body = json.dumps({"id": number, "amount": order["amount"]}).encode()
    return body, [["content-type", "application/json"], ["location", f"/payments/{number}"]]


@app.get("/payments")
async def payments():
    async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
        rows = await connection.execute("SELECT id, amount FROM payments ORDER BY id")
        return [{"id": number, "amount": amount} for number, amount in await rows.fetchall()]
