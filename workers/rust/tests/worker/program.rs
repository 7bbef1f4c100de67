//! A worker as a program: options, signals, sockets, exit status.

use std::os::unix::net::UnixListener;

use admission_gateway_worker::json;

use crate::gateway::{Conversation, ask, batch, call, connect, error_of};
use crate::process::{Socket, Worker, run};

#[test]
fn bad_usage_is_one_line_and_2() {
    for arguments in [&["--listen", "nowhere"][..], &["--port", "1"], &["--grace"], &["--tls-cert", "a"]] {
        let (status, said, printed) = run(arguments);
        assert_eq!((status, said.lines().count(), printed.as_str()), (2, 1, ""), "{said}");
        assert!(said.starts_with("worker: "), "{said}");
    }
    let (status, said, printed) = run(&["--help"]);
    assert_eq!((status, said.as_str()), (0, ""));
    assert!(printed.contains("--listen ADDRESS"), "{printed}");
}

#[test]
fn what_cannot_start_is_one_line_and_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let (status, said, _) = run(&["--listen", &address]);
    assert_eq!((status, said), (1, format!("worker: {address}: Address already in use\n")));
    let file = Socket::new("file");
    std::fs::write(&file.0, "").expect("written");
    let (status, said, _) = run(&["--listen", &file.address()]);
    let text = format!("worker: {}: the file exists and is not a socket\n", file.address());
    assert_eq!((status, said), (1, text));
    let (status, said, _) = run(&["--listen", "unix:/no/such/folder/w.sock"]);
    assert_eq!(status, 1);
    assert_eq!(said, "worker: unix:/no/such/folder/w.sock: there is no folder /no/such/folder\n");
}

#[test]
fn a_socket_of_a_dead_worker_is_taken_over_and_one_in_use_is_not() {
    let socket = Socket::new("dead");
    drop(UnixListener::bind(&socket.0).expect("a socket"));
    assert!(socket.0.exists());
    let mut worker = Worker::start(&["--listen", &socket.address(), "--listen", "[::1]:0"]);
    assert_eq!(worker.addresses.len(), 2);
    assert!(worker.addresses[1].starts_with("[::1]:") && !worker.addresses[1].ends_with(":0"));
    let (status, said, _) = run(&["--listen", &socket.address()]);
    let text = format!("worker: {}: Address already in use\n", socket.address());
    assert_eq!((status, said), (1, text));
    worker.signal("-TERM");
    let (status, said) = worker.wait();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    assert!(!socket.0.exists());
}

#[tokio::test]
async fn the_first_signal_drains() {
    let mut worker = Worker::start(&["--listen", "127.0.0.1:0", "--grace", "20"]);
    let mut client = connect(&worker.addresses[0]).await;
    let mut stream = Conversation::open(&mut client).await;
    stream.send(batch(&json!({}), vec![call(1, "sleeps", 2000), call(2, "require-labels", 60_000)]));
    stream.verdicts(1).await;
    worker.signal("-INT");
    assert!(stream.next().await.expect("no failure").expect("a message").draining);
    // A batch that crossed the notice is answered, what was in flight is waited for.
    stream.send(batch(&json!({}), vec![call(3, "deny-latest-tag", 60_000)]));
    let found = stream.verdicts(2).await;
    assert_eq!(error_of(&found[0]).0, 4);
    assert_eq!(found[1].id, 3);
    let refused = std::net::TcpStream::connect(&worker.addresses[0]);
    assert_eq!(refused.expect_err("closed").kind(), std::io::ErrorKind::ConnectionRefused);
    stream.half_close();
    assert_eq!(stream.next().await.expect("no failure"), None);
    let (status, said) = worker.wait();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn the_grace_ends_and_the_second_signal_ends_it_at_once() {
    for (grace, is_repeated, status) in [("0.2", false, 0), ("60", true, 128 + 15)] {
        let mut worker = Worker::start(&["--listen", "127.0.0.1:0", "--grace", grace]);
        let mut client = connect(&worker.addresses[0]).await;
        let mut stream = Conversation::open(&mut client).await;
        stream.send(batch(&json!({}), vec![call(1, "sleeps", 60_000), call(2, "require-labels", 60_000)]));
        stream.verdicts(1).await;
        worker.signal("-TERM");
        assert!(stream.next().await.expect("no failure").expect("a message").draining);
        if is_repeated {
            worker.signal("-TERM");
        }
        let (ended, said) = worker.wait();
        assert_eq!((ended.code(), said.as_str()), (Some(status), ""));
    }
}

#[tokio::test]
async fn a_failing_policy_is_logged_once_a_second() {
    let mut worker = Worker::start(&["--listen", "127.0.0.1:0"]);
    let mut client = connect(&worker.addresses[0]).await;
    for uid in 0..5 {
        let status = ask(&mut client, "fails", &json!({"uid": uid.to_string()})).await.expect_err("it fails");
        assert_eq!(status.message(), format!("this policy always fails (review {uid})"));
    }
    drop(client);
    worker.signal("-TERM");
    let (_, said) = worker.wait();
    let text =
        r#"ERROR worker: policy failed: policy="fails" uid="0" error="this policy always fails (review 0)""#;
    let (time, first) = said.lines().next().and_then(|line| line.split_once(' ')).expect("a line");
    assert!(time.ends_with('Z') && first == text, "{said}");
    // However slow the machine, five calls in a row take no five seconds.
    assert!(said.lines().count() < 5, "{said}");
}
