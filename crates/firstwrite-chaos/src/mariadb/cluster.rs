//! A Galera cluster of three, of which one node after the other is killed and joins again.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::{DATABASE, DURABLE, Node, galera};
use crate::engine::Engine;
use crate::guard::Guard;
use crate::place::{Place, steady_port};
use crate::process;
use crate::random::Random;

/// Two that are left are still most of them.
const NAMES: [&str; 3] = ["galera-0", "galera-1", "galera-2"];

pub(crate) struct Cluster<'a> {
    members: Vec<Member<'a>>,
    random: Random,
    folder: std::path::PathBuf,
}

struct Member<'a> {
    node: Node<'a>,
    /// For the group, and for what a node that comes back is sent, in two ways.
    ports: [u16; 3],
}

impl<'a> Cluster<'a> {
    /// Three empty servers below `folder`; they do not run yet. `seed` says who is killed.
    pub(crate) fn create(folder: &Path, seed: u64, guard: &'a Guard) -> anyhow::Result<Self> {
        let mut members = Vec::new();
        for name in NAMES {
            let node = Node::create(name, folder, DURABLE, guard)?;
            members.push(Member { node, ports: [steady_port()?, steady_port()?, steady_port()?] });
        }
        Ok(Self { members, random: Random::new(seed), folder: folder.to_owned() })
    }

    /// Starts one of them and waits until it has everything and sees `size` nodes.
    fn join(&mut self, number: usize, size: usize) -> anyhow::Result<()> {
        let all: Vec<String> =
            self.members.iter().map(|member| format!("127.0.0.1:{}", member.ports[0])).collect();
        let Member { node, ports: [group, incremental, whole] } = &mut self.members[number];
        let library = galera().context("the library of Galera is missing")?;
        node.start_with(|command| {
            command.args(["--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON"]);
            command.arg(format!("--wsrep-provider={}", library.display()));
            command.arg("--wsrep-cluster-name=firstwrite").arg("--wsrep-sst-method=rsync");
            command.arg(format!("--wsrep-cluster-address=gcomm://{}", all.join(",")));
            command.arg(format!("--wsrep-node-address=127.0.0.1:{group}"));
            command.arg(format!("--wsrep-sst-receive-address=127.0.0.1:{whole}"));
            command.arg(format!(
                "--wsrep-provider-options=base_port={group};\
                 gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{incremental}"
            ));
            if size == 1 {
                command.arg("--wsrep-new-cluster");
            }
            Ok(())
        })?;
        node.wait_until(|place| is_synced(place, size))
    }
}

impl Engine for Cluster<'_> {
    /// Names all of them: the first that can be reached is written to, and the next when it is lost.
    fn address(&self) -> String {
        let hosts = self.members.iter().map(|member| member.node.place.port);
        let hosts: Vec<String> = hosts.map(|port| format!("127.0.0.1:{port}")).collect();
        format!("mysql://root@{}/{DATABASE}", hosts.join(","))
    }

    /// Starts all nodes that do not run, and waits until they have joined. A node that is still receiving the data is
    /// not part of the cluster yet, and killing another one would leave one of three.
    fn start(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            if self.members[number].node.is_running() {
                continue;
            }
            let others = self.members.iter().filter(|member| member.node.is_running()).count();
            self.join(number, others + 1)?;
            if others == 0 {
                let create = format!("create database if not exists {DATABASE}");
                ask(&self.members[number].node.place, &create)?;
            }
        }
        Ok(())
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        ensure!(self.members.iter().all(|member| member.node.is_running()), "a node does not run");
        Ok(())
    }

    /// SIGKILL to one of them, the writer or a bystander.
    fn kill(&mut self) -> anyhow::Result<()> {
        let count = u64::try_from(self.members.len()).context("there are three")?;
        let number = usize::try_from(self.random.below(count)).context("there are three")?;
        self.members[number].node.kill()
    }

    fn pids(&self) -> Vec<u32> {
        self.members.iter().flat_map(|member| member.node.pids()).collect()
    }

    fn keep(&mut self) {
        for member in &mut self.members {
            member.node.keep();
        }
        println!("logs and data of the cluster stay in {}", self.folder.display());
    }
}

fn is_synced(place: &Place, size: usize) -> bool {
    let question = "show global status where variable_name in \
                    ('wsrep_local_state_comment', 'wsrep_cluster_size')";
    let said = ask(place, question).unwrap_or_default();
    let says = |value: &str| said.lines().any(|line| line.ends_with(&format!("\t{value}")));
    says("Synced") && says(&size.to_string())
}

/// Asks the server and returns its answer. Prints no errors, since the server may not be up yet.
fn ask(place: &Place, question: &str) -> anyhow::Result<String> {
    let program = process::find("mariadb").context("the client of MariaDB is missing")?;
    let mut command = Command::new(program);
    command.args(["--no-defaults", "--host=127.0.0.1", "--user=root", "--connect-timeout=5"]);
    command.arg(format!("--port={}", place.port)).args(["-N", "-B", "-e", question]);
    let output = command.output().context("cannot start the client of MariaDB")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim_end());
    String::from_utf8(output.stdout).context("reading what MariaDB says")
}
