//! RabbitMQ, and the name server of Erlang that it stands on, both on loopback only.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use firstwrite_chaos::packages::Need;
use firstwrite_chaos::place::{Place, steady_port};
use firstwrite_chaos::process;

use super::Recipe;

const USER: &str = "rabbitmq";
/// Path of the server itself: the program in `PATH` is Debian's wrapper, which insists on system folders.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

pub(super) const RECIPE: Recipe = Recipe {
    name: "rabbitmq",
    variable: "FIRSTWRITE_TEST_RABBITMQ",
    needs: &[SERVER],
    in_front_of: Some(&EPMD),
    is_costly: false,
    user: Some(USER),
    signal: "TERM",
    address: |port| format!("amqp://guest:guest@127.0.0.1:{port}/%2f"),
    prepare: |place| {
        for folder in [place.data(), home(place)] {
            process::read(place.command(Path::new("mkdir")).arg(&folder))?;
        }
        Ok(())
    },
    serve,
    is_ready: listens,
};

/// RabbitMQ starts one by itself if it finds none, and leaves it running for ever.
pub(super) const EPMD: Recipe = Recipe {
    name: "epmd",
    variable: "FIRSTWRITE_TEST_EPMD",
    needs: &[SERVER, Need { program: "epmd", packages: &["erlang-base"], find: None }],
    in_front_of: None,
    is_costly: false,
    user: Some(USER),
    signal: "TERM",
    address: |port| format!("127.0.0.1:{port}"),
    prepare: |_| Ok(()),
    serve: |place| {
        let mut command = place.command(&process::find("epmd").context("epmd is missing")?);
        command.args(["-address", "127.0.0.1", "-port", &place.port.to_string()]);
        Ok(command)
    },
    is_ready: listens,
};

const SERVER: Need = Need {
    program: "rabbitmq-server",
    packages: &["rabbitmq-server"],
    find: Some(|| Some(PathBuf::from(PROGRAM)).filter(|path| path.is_file())),
};

fn serve(place: &Place) -> anyhow::Result<Command> {
    let names = place.behind.context("RabbitMQ stands on epmd, and there is none")?;
    let data = place.data();
    let mut command = place.command(Path::new(PROGRAM));
    command
        .env("HOME", home(place))
        .env("RABBITMQ_NODENAME", "firstwrite@localhost")
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", place.port.to_string())
        .env("RABBITMQ_DIST_PORT", steady_port()?.to_string())
        // Without it the port for other nodes is open to every interface.
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}")
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("ERL_EPMD_PORT", names.to_string())
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
        .env("RABBITMQ_CONFIG_FILE", data.join("none"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", data.join("plugins"))
        .env("RABBITMQ_LOG_BASE", &data)
        .env("RABBITMQ_LOGS", "-")
        .env("RABBITMQ_MNESIA_BASE", data.join("mnesia"))
        .env("RABBITMQ_PID_FILE", data.join("pid"))
        // The script becomes the server, so that the pid we know is the one to stop.
        .env("RUNNING_UNDER_SYSTEMD", "1");
    Ok(command)
}

/// Returns the folder in which Erlang keeps the secret by which nodes recognise each other.
fn home(place: &Place) -> PathBuf {
    place.folder.join("home")
}

/// Both open their port last.
fn listens(place: &Place) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, place.port)).is_ok()
}
