//! Emulators of `DynamoDB`, from the Python index into a folder of their own: `ministack`, and `moto` as a
//! second opinion. Amazon's own is not used: its licence asks for an account.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use firstwrite_chaos::place::Place;
use firstwrite_chaos::process;

use super::Recipe;
use crate::examples::VENV;

/// The versions that the suites were run on.
const MINISTACK: &str = "ministack==1.5.33";
const MOTO: &str = "moto[dynamodb,server]==5.2.5";

pub(super) const RECIPE: Recipe = Recipe {
    name: "dynamodb",
    variable: "FIRSTWRITE_TEST_DYNAMODB",
    needs: &[VENV],
    in_front_of: None,
    is_costly: false,
    user: None,
    signal: "TERM",
    address: |port| format!("http://127.0.0.1:{port}"),
    prepare: |place| install(place, MINISTACK),
    serve: |place| {
        let mut command = place.command(&programs(place).join("ministack"));
        command.env("BIND_HOST", "127.0.0.1").env("GATEWAY_PORT", place.port.to_string());
        command.env("SERVICES", "dynamodb").env("SFTP_ENABLED", "0");
        command.env("STATE_DIR", place.data());
        Ok(command)
    },
    is_ready,
};

pub(super) const MOTO_RECIPE: Recipe = Recipe {
    name: "dynamodb-moto",
    variable: "FIRSTWRITE_TEST_DYNAMODB_MOTO",
    needs: &[VENV],
    in_front_of: None,
    is_costly: true,
    user: None,
    signal: "TERM",
    address: |port| format!("http://127.0.0.1:{port}"),
    prepare: |place| install(place, MOTO),
    serve: |place| {
        let mut command = place.command(&programs(place).join("moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &place.port.to_string()]);
        Ok(command)
    },
    is_ready,
};

fn programs(place: &Place) -> PathBuf {
    place.folder.join("venv").join("bin")
}

fn install(place: &Place, package: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(place.data()).context("cannot make a data folder")?;
    process::read(Command::new("python3").args(["-m", "venv"]).arg(place.folder.join("venv")))?;
    let mut install = Command::new(programs(place).join("pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", package]);
    process::read(&mut install).map(drop)
}

fn is_ready(place: &Place) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, place.port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}
