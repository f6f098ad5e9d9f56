//! Routing: finds the server that takes writes, or in a cluster the one that has the shard.
//!
//! A step that may have been done is never retried; a redirection means that it was not done.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::lock;
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::driver_error::{DriverError, ErrorReply};
use super::keys::{Keys, Shard};
use super::link::{Link, Server, bytes};
use super::options::{self, Address};
use super::scripts::Call;
use crate::address::Host;

pub(super) struct Router {
    pub(super) address: Address,
    pub(super) keys: Keys,
    /// Commands that follow each write on the same connection.
    waits: Vec<Cmd>,
    servers: Mutex<HashMap<Host, Arc<Server>>>,
    routes: Mutex<Routes>,
    /// Held while looking for the servers.
    looking: tokio::sync::Mutex<()>,
    looks: AtomicU64,
    /// True if the servers were a cluster when they were last found.
    is_cluster: AtomicBool,
    /// True if several of the named servers took writes when they were last asked.
    is_ambiguous: AtomicBool,
    is_closed: AtomicBool,
}

#[derive(Clone, Debug)]
enum Routes {
    Unknown,
    /// One server has everything.
    One(Host),
    /// A cluster: the server of each shard.
    Shards(Arc<[Host]>),
}

/// Maximum number of redirections of a step.
const REDIRECTIONS_MAX: usize = 8;
/// Pause before a step is sent again while its slot moves from one server to another.
const MOVING_PAUSE: Duration = Duration::from_millis(20);
/// Divisor of the time for an answer: the rest is left for the way back.
const WAIT_SHARE: u32 = 2;

impl Router {
    pub(super) fn new(address: Address) -> Self {
        let keys = Keys::new(&address.options.prefix);
        let waits = waits(&address);
        Self {
            address,
            keys,
            waits,
            servers: Mutex::default(),
            routes: Mutex::new(Routes::Unknown),
            looking: tokio::sync::Mutex::default(),
            looks: AtomicU64::new(0),
            is_cluster: AtomicBool::new(false),
            is_ambiguous: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Runs one step at the server of `shard`. The step may depend on that server.
    pub(super) async fn run(
        &self,
        shard: Shard,
        call: impl Fn(&Link) -> Call,
    ) -> Result<Value, DriverError> {
        let until = Instant::now() + self.address.options.answer_for;
        let mut redirect: Option<Host> = None;
        let mut redirections = 0;
        loop {
            let (server, is_asking) = match redirect.take() {
                Some(host) => (self.server(&host)?, true),
                None => (self.route(shard).await?, false),
            };
            let link = match server.link().await {
                Ok(link) => link,
                Err(error) => {
                    self.forget_routes();
                    return Err(error);
                }
            };
            let reply = match self.send(&link, call(&link), is_asking).await {
                Ok(value) => return Ok(value),
                Err(DriverError::Reply(reply)) => reply,
                Err(error) => {
                    if error.is_about_server() {
                        self.leave(&server, &link);
                    }
                    return Err(error);
                }
            };
            redirections += 1;
            let may_go_on = redirections < REDIRECTIONS_MAX
                || (reply.code == "TRYAGAIN" && Instant::now() < until);
            match (&*reply.code, &reply.redirect) {
                _ if !may_go_on => return Err(DriverError::Reply(reply)),
                ("NOSCRIPT", _) => drop(link.load(self.has_own_clock()).await?),
                ("TRYAGAIN", _) => tokio::time::sleep(MOVING_PAUSE).await,
                ("MOVED", Some(place)) => self.moved(shard, place, &server.host, &reply)?,
                ("ASK", Some(place)) => redirect = Some(named(place, &server.host, &reply)?),
                _ => {
                    let error = DriverError::Reply(reply);
                    if error.is_about_server() {
                        self.leave(&server, &link);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Asks the server of `shard` something that is no script and changes nothing.
    pub(super) async fn ask(&self, shard: Shard, command: &Cmd) -> Result<Value, DriverError> {
        for _ in 0..REDIRECTIONS_MAX {
            let server = self.route(shard).await?;
            let link = server.link().await.inspect_err(|_error| self.forget_routes())?;
            match link.ask(command).await {
                Ok(value) => return Ok(value),
                Err(DriverError::Reply(reply)) if reply.code == "MOVED" || reply.code == "ASK" => {
                    let place = reply.redirect.clone().unwrap_or_default();
                    self.moved(shard, &place, &server.host, &reply)?;
                }
                Err(error) => {
                    if error.is_about_server() {
                        self.leave(&server, &link);
                    }
                    return Err(error);
                }
            }
        }
        Err(DriverError::NotSent("the cluster sends us round in circles".to_owned()))
    }

    /// A connection to every server that has records.
    pub(super) async fn masters(&self) -> Result<Vec<(Host, Arc<Link>)>, DriverError> {
        let mut links = Vec::new();
        for host in self.master_hosts().await? {
            let link = self.server(&host)?.link().await?;
            links.push((host, link));
        }
        Ok(links)
    }

    /// Reads the current description of every server that has records.
    pub(super) async fn refresh(&self) -> Result<(), DriverError> {
        for host in self.master_hosts().await? {
            let server = self.server(&host)?;
            let link = server.link().await.inspect_err(|_error| self.forget_routes())?;
            if link.refresh().await.is_err() {
                // A new connection asks by itself.
                server.let_go(&link);
                server.link().await.inspect_err(|_error| self.forget_routes())?;
            }
        }
        Ok(())
    }

    async fn master_hosts(&self) -> Result<BTreeSet<Host>, DriverError> {
        self.look().await?;
        Ok(match &*lock(&self.routes) {
            Routes::Unknown => BTreeSet::new(),
            Routes::One(host) => BTreeSet::from([host.clone()]),
            Routes::Shards(hosts) => hosts.iter().cloned().collect(),
        })
    }

    /// Asks every named server whether it takes writes. If several do, returns an error that names them:
    /// whichever is written to, the others do not know the key. Servers that do not answer are skipped.
    pub(super) async fn ask_named(&self) -> Option<String> {
        if self.address.hosts().len() < 2 {
            return None;
        }
        let asked = self.address.hosts().iter().map(|host| async move {
            let server = self.server(host).ok()?;
            let link = server.link().await.ok()?;
            let about = link.refresh().await;
            let about = about.inspect_err(|_error| server.let_go(&link)).ok()?;
            if !about.is_master() {
                // It may be promoted; a new connection asks anew.
                server.let_go(&link);
                return None;
            }
            // In a cluster many take writes, each for its own slots.
            (!about.is_cluster()).then(|| (about.run().to_owned(), host.to_string()))
        });
        let answers = futures_util::future::join_all(asked).await;
        // A server may be named twice.
        let writable: BTreeMap<String, String> = answers.into_iter().flatten().collect();
        let names: Vec<String> = writable.into_values().collect();
        let refusal = (names.len() > 1).then(|| {
            format!(
                "{} take writes, and what one of them acknowledges the others do not know; make all but one of \
                 them replicas, or name one",
                names.join(" and ")
            )
        });
        let is_ambiguous = refusal.is_some();
        if self.is_ambiguous.swap(is_ambiguous, Ordering::AcqRel) != is_ambiguous {
            if let Some(why) = &refusal {
                tracing::error!("unknown keys are refused: {why}");
            } else {
                tracing::warn!("one server takes writes: unknown keys are accepted again");
            }
        }
        refusal
    }

    /// Returns true if unknown keys must not be written over this connection.
    pub(super) fn is_unfit(&self, link: &Link) -> bool {
        link.is_unfit() || self.is_ambiguous.load(Ordering::Acquire)
    }

    /// The shard whose mark counts the writes of `shard`: where one server has everything, the first.
    pub(super) fn marked(&self, shard: Shard) -> Shard {
        if self.is_cluster.load(Ordering::Acquire) { shard } else { Shard(0) }
    }

    /// The shards that have a mark.
    pub(super) async fn all_marked(&self) -> Result<BTreeSet<Shard>, DriverError> {
        self.look().await?;
        Ok(Shard::all().map(|shard| self.marked(shard)).collect())
    }

    /// Returns true if one server is known to have everything, so that a script may concern several shards.
    pub(super) fn has_one_server(&self) -> bool {
        matches!(&*lock(&self.routes), Routes::One(_))
    }

    pub(super) fn has_own_clock(&self) -> bool {
        self.address.options.clock.is_some()
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.forget_routes();
        for server in lock(&self.servers).values() {
            server.close();
        }
    }

    async fn send(
        &self,
        link: &Link,
        mut call: Call,
        is_asking: bool,
    ) -> Result<Value, DriverError> {
        if let Some(clock) = &self.address.options.clock {
            call.args.push(clock().as_millis().to_string());
        }
        let waits = if call.script.is_waited_for() { &self.waits[..] } else { &[][..] };
        let mut values = link.run_script(&call, waits, is_asking).await?.into_iter();
        let answer = match values.next() {
            Some(Value::ServerError(error)) => return Err(DriverError::of_reply(&error)),
            Some(answer) => answer,
            None => return Err(DriverError::Lost("an answer is missing".to_owned())),
        };
        for waited in values {
            self.check_waited(&waited)?;
        }
        Ok(answer)
    }

    /// Fails unless enough replicas and disks have the write. Even then, the write was done.
    fn check_waited(&self, waited: &Value) -> Result<(), DriverError> {
        let options = &self.address.options;
        if let Value::ServerError(error) = waited {
            return Err(DriverError::Lost(format!(
                "the server does not wait: it says {}",
                error.code()
            )));
        }
        let is_enough = if let Value::Array(counts) = waited {
            // The server's own disk, and those of replicas.
            matches!(counts[..], [Value::Int(1..), Value::Int(_)])
        } else {
            matches!(waited, Value::Int(replicas) if *replicas >= i64::from(options.wait_replicas))
        };
        if is_enough {
            return Ok(());
        }
        Err(DriverError::Unconfirmed("too few replicas or disks have the write".to_owned()))
    }

    async fn route(&self, shard: Shard) -> Result<Arc<Server>, DriverError> {
        self.look().await?;
        let host = match &*lock(&self.routes) {
            Routes::One(host) => host.clone(),
            Routes::Shards(hosts) => hosts[shard.place()].clone(),
            // Another task has lost the server again at this very moment.
            Routes::Unknown => return Err(DriverError::NotSent("the server was lost".to_owned())),
        };
        self.server(&host)
    }

    /// Finds out where the servers are, if that is not known.
    async fn look(&self) -> Result<(), DriverError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(DriverError::NotSent("the store is closed".to_owned()));
        }
        let is_known = || !matches!(&*lock(&self.routes), Routes::Unknown);
        let looks = self.looks.load(Ordering::Acquire);
        if is_known() {
            return Ok(());
        }
        let _turn = self.looking.lock().await;
        if is_known() {
            return Ok(());
        }
        if self.looks.load(Ordering::Acquire) != looks {
            return Err(DriverError::NotSent("no server can be reached".to_owned()));
        }
        let found = self.find().await;
        self.looks.fetch_add(1, Ordering::AcqRel);
        let found = found?;
        // Servers come and go; those that no longer have a part are forgotten.
        if let Routes::Shards(hosts) = &found {
            let named = self.address.hosts();
            lock(&self.servers).retain(|host, _| named.contains(host) || hosts.contains(host));
        }
        self.is_cluster.store(matches!(found, Routes::Shards(_)), Ordering::Release);
        *lock(&self.routes) = found;
        Ok(())
    }

    async fn find(&self) -> Result<Routes, DriverError> {
        let named = self.address.hosts();
        let mut hosts = named.to_vec();
        let known: HashMap<Host, Arc<Server>> = lock(&self.servers).clone();
        hosts.extend(known.keys().filter(|host| !named.contains(host)).cloned());
        // Try connected servers first: they answer at once, and a lost one may keep us waiting.
        hosts.sort_by_key(|host| !known.get(host).is_some_and(|server| server.is_connected()));
        let mut last = DriverError::NotSent("no server takes writes".to_owned());
        for host in hosts {
            let server = self.server(&host)?;
            let link = match server.link().await {
                Ok(link) => link,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            let found = if link.about().is_cluster() {
                self.shards(&link, &host).await
            } else if link.about().is_master() {
                Ok(Routes::One(host.clone()))
            } else {
                Err(DriverError::NotSent(format!("{host} is a replica")))
            };
            match found {
                Ok(routes) => return Ok(routes),
                Err(error) => {
                    // Its role may change; a new connection asks again.
                    server.let_go(&link);
                    last = error;
                }
            }
        }
        Err(DriverError::NotSent(last.to_string()))
    }

    async fn shards(&self, link: &Link, asked: &Host) -> Result<Routes, DriverError> {
        let value = link.ask(redis::cmd("CLUSTER").arg("SLOTS")).await?;
        let Value::Array(ranges) = value else {
            return Err(DriverError::NotSent("the cluster does not tell its slots".to_owned()));
        };
        let ranges: Vec<(i64, i64, Host)> =
            ranges.iter().filter_map(|range| read_range(range, asked)).collect();
        let host_of = |shard: Shard| {
            let slot = i64::from(self.keys.slot(shard));
            let range = ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
            range.map(|(_, _, host)| host.clone())
        };
        let hosts: Option<Vec<Host>> = Shard::all().map(host_of).collect();
        let hosts = hosts.ok_or_else(|| {
            DriverError::NotSent("the cluster does not serve all slots".to_owned())
        })?;
        Ok(Routes::Shards(hosts.into()))
    }

    /// Notes that a shard has moved; the others are looked up when they are needed.
    fn moved(
        &self,
        shard: Shard,
        place: &str,
        asked: &Host,
        reply: &ErrorReply,
    ) -> Result<(), DriverError> {
        let host = named(place, asked, reply)?;
        let mut routes = lock(&self.routes);
        if let Routes::Shards(hosts) = &mut *routes {
            let mut now: Vec<Host> = hosts.to_vec();
            now[shard.place()] = host;
            *hosts = now.into();
        } else {
            *routes = Routes::Unknown;
        }
        Ok(())
    }

    /// Drops a server that can no longer be used.
    fn leave(&self, server: &Server, link: &Arc<Link>) {
        server.let_go(link);
        self.forget_routes();
    }

    fn forget_routes(&self) {
        *lock(&self.routes) = Routes::Unknown;
    }

    fn server(&self, host: &Host) -> Result<Arc<Server>, DriverError> {
        if let Some(server) = lock(&self.servers).get(host) {
            return Ok(Arc::clone(server));
        }
        let made = Server::new(&self.address, host)
            .map_err(|error| DriverError::NotSent(error.to_string()))?;
        Ok(Arc::clone(lock(&self.servers).entry(host.clone()).or_insert_with(|| Arc::new(made))))
    }
}

fn waits(address: &Address) -> Vec<Cmd> {
    let options = &address.options;
    let millis = u64::try_from((options.answer_for / WAIT_SHARE).as_millis()).unwrap_or(u64::MAX);
    let mut waits = Vec::new();
    if options.wait_aof {
        waits.push(redis::cmd("WAITAOF").arg(1).arg(0).arg(millis).clone());
    }
    if options.wait_replicas > 0 {
        waits.push(redis::cmd("WAIT").arg(options.wait_replicas).arg(millis).clone());
    }
    waits
}

fn named(place: &str, asked: &Host, reply: &ErrorReply) -> Result<Host, DriverError> {
    options::node(place, asked).ok_or_else(|| DriverError::Reply(reply.clone()))
}

/// Reads a range of slots: the first, the last, and the server that takes writes for them.
fn read_range(value: &Value, asked: &Host) -> Option<(i64, i64, Host)> {
    let Value::Array(parts) = value else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else {
        return None;
    };
    let [name, Value::Int(port), ..] = &master[..] else { return None };
    let name = bytes(name).and_then(|name| str::from_utf8(name).ok()).unwrap_or_default();
    let host = options::node(&format!("{name}:{port}"), asked)?;
    Some((*first, *last, host))
}
