"""A payments API behind `firstwrite gateway` that finishes the job itself.

It shares the gateway's PostgreSQL. The payment and its answer are written in one transaction: whatever happens
to the answer on its way, the client's retry gets it.

    DATABASE=postgres://app@127.0.0.1/shop uvicorn app:app --port 3000
    firstwrite gateway --upstream http://127.0.0.1:3000 --store postgres://app@127.0.0.1/shop

With DIE=after-commit in its environment it kills itself between the commit and the answer, to show that.
"""

import json
import os
import signal

import psycopg
from fastapi import FastAPI, Request, Response

DATABASE = os.environ["DATABASE"]

app = FastAPI()

with psycopg.connect(DATABASE) as setup:
    setup.execute("CREATE TABLE IF NOT EXISTS payments "
                  "(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount bigint NOT NULL)")


@app.post("/payments")
async def pay(request: Request):
    # What the gateway says of the attempt. Nobody else can: it drops these headers from clients.
    tenant, key, fence = (request.headers[f"firstwrite-{name}"] for name in ("tenant", "key", "fence"))
    order = await request.json()
    async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
        row = await connection.execute(
            "INSERT INTO payments (amount) VALUES (%s) RETURNING id", [order["amount"]])
        number = (await row.fetchone())[0]
        answer = json.dumps({"id": number, "amount": order["amount"]})
        headers = json.dumps([["content-type", "application/json"], ["location", f"/payments/{number}"]])
        # In the same transaction. If another attempt has taken over, this raises, and the payment is undone.
        await connection.execute(
            "SELECT firstwrite.complete(%s, %s, %s, 201, %s::jsonb, %s::bytea)",
            [tenant, key, int(fence), headers, answer.encode()])
    if os.environ.get("DIE") == "after-commit":
        os.kill(os.getpid(), signal.SIGKILL)
    return Response(answer, 201, {"location": f"/payments/{number}"}, "application/json")


@app.get("/payments")
async def payments():
    async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
        rows = await connection.execute("SELECT id, amount FROM payments ORDER BY id")
        return [{"id": number, "amount": amount} for number, amount in await rows.fetchall()]
