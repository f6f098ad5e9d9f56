"""The asyncio client. The engine is the same; this tests what is its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import unittest
from typing import Any, Callable, Dict, List, Mapping

from firstwrite import (
    Answer,
    AsyncClient,
    CredentialsError,
    CredentialsRequest,
    IntentConflict,
    Lost,
    Outgoing,
    Pending,
    SqliteStorage,
    WrongState,
)
from tests.fakes import KEPT, URL, AsyncRig, ManualClock, answer, lost
from tests.servers import Connection, RawServer


class AsyncIntents(unittest.IsolatedAsyncioTestCase):
    async def test_an_intent_from_opening_to_acknowledging(self) -> None:
        rig = AsyncRig(
            lost(), answer(503), answer(201, KEPT, {"id": "pay_1"}), credentials={"Authorization": "x"}
        )
        async with rig.client.intent("i", "POST", URL, json={"amount": 1}) as pay:
            end = await pay.send()
            self.assertEqual((end.kind, end.json()), ("done", {"id": "pay_1"}))
            self.assertEqual((pay.state, pay.attempts), ("done", 3))
            await pay.acknowledge()
        self.assertEqual(await rig.client.intents(), [])
        self.assertEqual(len(set(rig.transport.inner.keys())), 1)
        await rig.client.aclose()

    async def test_opening_can_be_awaited(self) -> None:
        async with AsyncRig().client as client:
            pay = await client.intent("i", "POST", URL)
            self.assertEqual(pay.state, "open")
            found = await client.find("i")
            assert found is not None
            self.assertEqual(found.key, pay.key)
            with self.assertRaises(IntentConflict):
                await client.intent("i", "PUT", URL)

    async def test_superseding_and_resuming(self) -> None:
        rig = AsyncRig(answer(422, KEPT), answer(500, KEPT), answer(201, KEPT), status="never")
        pay = await rig.client.intent("i", "POST", URL)
        self.assertEqual((await pay.send()).kind, "refused")
        with self.assertRaises(WrongState):
            await pay.resume()
        await pay.supersede("PUT", URL)
        self.assertEqual((await pay.send()).kind, "unknown")
        self.assertEqual((await pay.resume()).kind, "done")
        await rig.client.aclose()

    async def test_credentials_may_be_awaited(self) -> None:
        calls: List[bool] = []

        async def fetch(wanted: CredentialsRequest) -> Mapping[str, str]:
            calls.append(wanted.refresh)
            return {"Authorization": "Bearer x"}

        rig = AsyncRig(answer(401), answer(201, KEPT), credentials=fetch)
        await (await rig.client.intent("i", "POST", URL)).send()
        self.assertEqual(calls, [False, True])
        await rig.client.aclose()

    async def test_credentials_that_fail_send_nothing(self) -> None:
        async def fetch(wanted: CredentialsRequest) -> Mapping[str, str]:
            raise RuntimeError("vault is sealed")

        rig = AsyncRig(credentials=fetch)
        with self.assertRaises(CredentialsError):
            await (await rig.client.intent("i", "POST", URL)).send()
        await rig.client.aclose()

    async def test_pending(self) -> None:
        rig = AsyncRig(answer(503, {"Retry-After": "60"}))
        pay = await rig.client.intent("i", "POST", URL)
        with self.assertRaises(Pending):
            await pay.send(wait_for=30)
        await rig.client.aclose()

    async def test_a_cancelled_attempt_leaves_the_doubt(self) -> None:
        begun = asyncio.Event()

        class Hanging:
            async def send(
                self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]
            ) -> Answer:
                begun.set()
                await asyncio.Event().wait()
                raise Lost("not reached")

            async def aclose(self) -> None:
                pass

        clock = ManualClock()
        storage = AsyncRig().storage
        client = AsyncClient(storage=storage, transport=Hanging(), clock=clock, sleep=clock.async_sleep)
        pay = await client.intent("i", "POST", URL)
        task = asyncio.ensure_future(pay.send())
        await begun.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        found = await client.find("i")
        assert found is not None
        self.assertEqual((found.state, found.in_doubt), ("sending", True))
        await client.aclose()

    async def test_fifty_intents_at_once_over_real_sockets(self) -> None:
        folder = tempfile.mkdtemp(prefix="firstwrite-async-")
        self.addCleanup(shutil.rmtree, folder)

        def script(connection: Connection) -> None:
            connection.request()
            connection.send(
                b"HTTP/1.1 201 Created\r\nIdempotent-Replayed: true\r\nContent-Length: 2\r\n\r\n{}"
            )

        with RawServer(script) as server:
            async with AsyncClient(storage=SqliteStorage(os.path.join(folder, "i.db"))) as client:

                async def pay(number: int) -> Any:
                    async with client.intent(
                        f"intent {number}", "POST", server.url + "/payments", json={}
                    ) as pay:
                        end = await pay.send()
                        await pay.acknowledge()
                        return end

                ends = await asyncio.gather(*(pay(number) for number in range(50)))
                self.assertEqual({(end.kind, end.replayed) for end in ends}, {("done", True)})
                self.assertEqual(await client.intents(), [])
            keys: Dict[bytes, int] = {}
            for request in server.requests:
                for line in request.split(b"\r\n"):
                    if line.startswith(b"idempotency-key:"):
                        keys[line] = keys.get(line, 0) + 1
            self.assertEqual((len(keys), set(keys.values())), (50, {1}))
