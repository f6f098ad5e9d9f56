//! The demo on two `PostgreSQL` servers, of which one is the standby of the other.

use std::net::SocketAddr;

use anyhow::{Context, bail};

use super::Site;
use crate::demo::{Demo, Stage};
use crate::guard::Guard;
use crate::place::free_port;
use crate::postgres::Node;

/// Replication mode of the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standby {
    /// A commit is acknowledged when the standby has applied it.
    Synchronous,
    /// A commit is acknowledged without asking the standby.
    Asynchronous,
}

/// Behaviour of the service at a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Goes on, and finds the new primary by itself.
    Stays,
    /// Is killed with the primary and started afresh.
    Restarts,
}

pub(super) struct Pair<'a> {
    /// Killed before the servers are stopped: fields are dropped in this order.
    demo: Option<Demo<'a>>,
    stage: Stage<'a>,
    primary: Node<'a>,
    standby: Node<'a>,
    follows: Standby,
    service: Service,
}

impl<'a> Pair<'a> {
    /// Two servers, the second a fresh copy of the first; the demo does not run yet.
    pub(super) fn make(
        stage: Stage<'a>,
        (follows, service): (Standby, Service),
        guard: &'a Guard,
    ) -> anyhow::Result<Self> {
        let mut primary = Node::create("north", stage.folder(), &[], guard)?;
        primary.start()?;
        primary.wait_until_ready()?;
        let standby = Node::standby_of(&primary, "south", stage.folder(), guard)?;
        let (one, other) = (primary.port(), standby.port());
        let stage = stage.on(format!(
            "postgres://postgres@127.0.0.1:{one},127.0.0.1:{other}/postgres\
             ?target_session_attrs=read-write"
        ));
        Ok(Self { demo: None, stage, primary, standby, follows, service })
    }

    pub(super) fn keep(&mut self) {
        self.primary.keep();
        self.standby.keep();
    }

    pub(super) fn clear(self) {
        let Self { demo, stage, primary, standby, .. } = self;
        drop((demo, primary, standby));
        stage.clear();
    }

    fn start_standby(&mut self) -> anyhow::Result<()> {
        self.standby.start()?;
        self.standby.wait_until_ready()?;
        match self.follows {
            Standby::Synchronous => self.primary.wait_for_standby_in_commits(&self.standby),
            Standby::Asynchronous => self.primary.wait_until_applied_by(&self.standby),
        }
    }

    fn start_demo(&mut self) -> anyhow::Result<SocketAddr> {
        let mut demo = self.stage.start(free_port()?)?;
        demo.wait_until_ready()?;
        let address = demo.address;
        self.demo = Some(demo);
        Ok(address)
    }
}

impl Site for Pair<'_> {
    fn start(&mut self) -> anyhow::Result<SocketAddr> {
        self.start_standby()?;
        self.start_demo()
    }

    fn hold_back(&mut self) -> anyhow::Result<()> {
        // A paused standby would still fetch, and apply at its promotion; one that is down cannot.
        self.primary.wait_until_applied_by(&self.standby)?;
        self.standby.stop()
    }

    fn fail_over(&mut self) -> anyhow::Result<SocketAddr> {
        self.primary.kill()?;
        if self.service == Service::Restarts {
            self.demo.take().map_or(Ok(()), Demo::kill)?;
        }
        if !self.standby.is_running() {
            self.standby.start()?;
            self.standby.wait_until_ready()?;
        }
        self.standby.promote()?;
        std::mem::swap(&mut self.primary, &mut self.standby);
        match &mut self.demo {
            // It listens all the time; one that has ended because its database was gone is a finding.
            Some(demo) => {
                demo.wait_until_ready().context("the standby was promoted")?;
                Ok(demo.address)
            }
            None if self.service == Service::Restarts => self.start_demo(),
            None => bail!("the demo was not started"),
        }
    }

    fn restore(&mut self) -> anyhow::Result<()> {
        self.standby.rebuild_from(&self.primary)?;
        self.start_standby()?;
        match self.follows {
            Standby::Synchronous => self.primary.wait_until_service_knows_of_standby(),
            Standby::Asynchronous => Ok(()),
        }
    }

    fn clear_history_loss(&mut self) -> anyhow::Result<()> {
        self.stage
            .run("doctor", &["--clear-history-loss", "--reason", "the failover test has looked"])
    }
}
