//! Requests on their way: one, many at the same moment, and by hand.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Probe, Stop, digest};
use crate::call::Call;
use crate::reply::Reply;
use crate::timeline::Exchange;
use crate::wire::{Connection, Silence};

impl Probe {
    /// Counts requests, and ends the scene when there were enough.
    pub(crate) fn spend(&mut self, requests: usize) -> Result<(), Stop> {
        let spent = u32::try_from(requests).ok().and_then(|more| self.requests.checked_add(more));
        let max = self.plan.limits.requests;
        match spent.filter(|spent| *spent <= max) {
            Some(spent) => {
                self.requests = spent;
                Ok(())
            }
            None => Err(Stop(format!("all {max} requests are spent: raise --requests-max"))),
        }
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Connection, Silence> {
        Connection::open(&self.target, self.trust.as_ref(), self.plan.limits.answer).await
    }

    /// Sends one request on a connection of its own.
    pub(crate) async fn send(&mut self, call: &Call) -> Result<Reply, Stop> {
        let mut replies = self.send_all(std::slice::from_ref(call)).await?;
        Ok(replies.pop().expect("one reply for one request"))
    }

    /// Sends all of them at the same moment: everything but the last byte of each goes ahead, so that the
    /// server has them together however long connecting takes.
    pub(crate) async fn send_all(&mut self, calls: &[Call]) -> Result<Vec<Reply>, Stop> {
        self.spend(calls.len())?;
        let began_at = Instant::now();
        let prepared = join_all(calls.iter().map(|call| self.prepare(call))).await;
        let sending = prepared.into_iter().map(|prepared| async {
            let (mut connection, last) = match prepared {
                Ok(prepared) => prepared,
                Err(silence) => return (Err(silence), Instant::now(), None),
            };
            // A server that refuses early may have closed; what it said is read all the same.
            let written = connection.write(&last).await;
            let sent_at = Instant::now();
            let answer = match (connection.answer().await, written) {
                (Err(Silence::Closed), Err(silence)) => Err(silence),
                (answer, _) => answer,
            };
            (answer, sent_at, connection.heard_at())
        });
        let results = join_all(sending).await;
        let mut replies = Vec::with_capacity(results.len());
        for (result, sent_at, heard_at) in results {
            let ended_at = Instant::now();
            let took = heard_at.unwrap_or(ended_at).saturating_duration_since(sent_at);
            let reply = Reply { result, took };
            self.record(began_at, sent_at, &reply);
            if let Some(answer) = reply.answer().filter(|answer| answer.is_success()) {
                self.told.insert(digest(&answer.body));
            }
            replies.push(reply);
        }
        Ok(replies)
    }

    /// Puts a request into the timeline.
    pub(crate) fn record(&mut self, began_at: Instant, sent_at: Instant, reply: &Reply) {
        self.exchanges.push(Exchange {
            scene: self.scene,
            began: began_at - self.began_at,
            sent: sent_at - self.began_at,
            heard: (sent_at + reply.took).saturating_duration_since(self.began_at),
            status: reply.status(),
        });
    }

    /// A connection on which all but the last byte has been written.
    async fn prepare(&self, call: &Call) -> Result<(Connection, Vec<u8>), Silence> {
        let mut connection = self.connect().await?;
        let mut bytes = call.bytes(self.target.authority());
        let last = bytes.split_off(bytes.len() - 1);
        match connection.write(&bytes).await {
            // Closed early: the answer is still to be read.
            Ok(()) | Err(Silence::Closed) => Ok((connection, last)),
            Err(silence) => Err(silence),
        }
    }
}
