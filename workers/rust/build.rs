//! Generates the messages and the service from the contract, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=worker.proto");
    let rustc = std::process::Command::new(std::env::var("RUSTC")?).arg("--version").output()?;
    let version = String::from_utf8(rustc.stdout)?;
    println!("cargo::rustc-env=WORKER_RUSTC_VERSION={}", version.split(' ').nth(1).unwrap_or_default());
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    let contract = protox::compile(["worker.proto"], ["."])?;
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .codec_path("crate::codec::WorkerCodec")
        .bytes(".")
        .btree_map(".")
        .out_dir(&out)
        .compile_fds(contract.clone())?;
    // What the tests ask a worker with; no part of the library.
    let client = out.join("client");
    std::fs::create_dir_all(&client)?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .btree_map(".")
        .out_dir(&client)
        .compile_fds(contract)?;
    Ok(())
}
