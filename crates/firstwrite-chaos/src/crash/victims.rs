//! The real victims of a crash run: the demo, or the database under it.

use std::net::SocketAddr;

use anyhow::{Context, bail};

use super::Victim;
use crate::demo::{Demo, Stage};
use crate::engine::Engine;
use crate::place::free_port;

/// The demo on its stage; its store stays.
pub(super) struct DemoVictim<'a> {
    stage: &'a Stage<'a>,
    demo: Option<Demo<'a>>,
}

/// The database; the demo stays, and has to live with it.
pub(super) struct ServerVictim<'a, 'g> {
    stage: &'a Stage<'a>,
    server: &'a mut (dyn Engine + 'g),
    demo: Option<Demo<'a>>,
}

impl<'a> DemoVictim<'a> {
    pub(super) fn new(stage: &'a Stage<'a>) -> Self {
        Self { stage, demo: None }
    }
}

impl Victim for DemoVictim<'_> {
    fn start(&mut self) -> anyhow::Result<SocketAddr> {
        // A fresh port each time: the old one may still be held by connections that are winding down.
        let demo = self.stage.start(free_port()?)?;
        let address = demo.address;
        self.demo = Some(demo);
        Ok(address)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        match &mut self.demo {
            Some(demo) => demo.wait_until_ready().map(|_| ()),
            None => bail!("the demo was not started"),
        }
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.demo.take().map_or(Ok(()), Demo::kill)
    }
}

impl<'a, 'g> ServerVictim<'a, 'g> {
    pub(super) fn new(stage: &'a Stage<'a>, server: &'a mut (dyn Engine + 'g)) -> Self {
        Self { stage, server, demo: None }
    }
}

impl Victim for ServerVictim<'_, '_> {
    fn start(&mut self) -> anyhow::Result<SocketAddr> {
        self.server.start()?;
        if let Some(demo) = &self.demo {
            return Ok(demo.address);
        }
        // Once only: the demo makes its tables when it starts, and cannot without a server.
        self.server.wait_until_ready()?;
        let mut demo = self.stage.start(free_port()?)?;
        demo.wait_until_it_serves()?;
        let address = demo.address;
        self.demo = Some(demo);
        Ok(address)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        self.server.wait_until_ready()?;
        match &mut self.demo {
            // It listens all the time; one that has ended because its database was gone is a finding.
            Some(demo) => demo.wait_until_ready().map(|_| ()).context("its database came back"),
            None => bail!("the demo was not started"),
        }
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.server.kill()
    }
}
