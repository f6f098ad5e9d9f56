//! A gateway without sockets: the same path of a request, over a [`Line`] that a simulation holds.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use firstwrite::{PolicyResolver as _, ResponseBody};
use firstwrite_core::{Store, StoreError};
use http::{Request, Response};
use tokio::sync::Mutex;

use crate::body::RequestBody;
use crate::gateway::{GatewayError, stack};
use crate::peer::Peer;
use crate::resolve::Resolver;
use crate::settings::Rules;
use crate::stack::Stack;
use crate::upstream::Line;

/// A gateway that is handed its requests, and whose upstream is a [`Line`].
pub struct SimulatedGateway {
    stack: Stack,
    resolver: Mutex<Resolver>,
}

impl SimulatedGateway {
    /// A gateway over a store.
    pub fn new(
        store: &Arc<dyn Store>,
        rules: Rules,
        line: Arc<dyn Line>,
    ) -> Result<Self, GatewayError> {
        let stack = stack(store, rules, Some(line))?;
        let calls = stack.calls();
        let (operations, upstreams) = (Arc::clone(&calls.operations), Arc::clone(&calls.upstreams));
        let resolver = Mutex::new(Resolver::new(Arc::clone(store), operations, upstreams));
        Ok(Self { stack, resolver })
    }

    /// Answers a request that was read whole.
    pub async fn answer(&self, request: Request<Bytes>, peer: &Peer) -> Response<ResponseBody> {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(peer.clone());
        if let Some(operation) = self.stack.calls().operations.operation(&parts) {
            parts.extensions.insert(operation);
        }
        self.stack.through(Request::from_parts(parts, RequestBody::from(body))).await
    }

    /// Asks about uncertain records, as the gateway does beside its requests; how many were settled.
    pub async fn resolve(&self) -> Result<usize, StoreError> {
        self.resolver.lock().await.turn().await
    }
}

impl fmt::Debug for SimulatedGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedGateway").finish_non_exhaustive()
    }
}
