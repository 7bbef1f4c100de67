//! Reads and policies of a cluster.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admission_gateway_wasm::cluster::Cluster;
use admission_gateway_wasm::connection::Connection;
use admission_gateway_wasm::following::Following;
use admission_gateway_wasm::host::Wanted;
use admission_gateway_wasm::loading::{Loader, Sources};
use admission_gateway_worker::{Value, json, serde_json};

use crate::api::{Api, Reply, Request, TOKEN, discovery, object, parsed, refusal};
use crate::folder::{Folder, ask, denial, document, guest, program, quick, request};

const KINDS: [(&str, &str, bool); 3] =
    [("ConfigMap", "configmaps", true), ("Node", "nodes", false), ("Secret", "secrets", true)];

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn wanted(content: Value) -> Wanted {
    let mut all = json!({"api_version": "v1", "kind": "ConfigMap"});
    all.as_object_mut().expect("one").extend(content.as_object().expect("one").clone());
    serde_json::from_value(all).expect("a payload")
}

fn connection(api: &Api) -> Arc<Connection> {
    let folder = Folder::new();
    let file = api.kubeconfig(&folder, json!({"token": TOKEN}));
    Arc::new(Connection::new(Some(&file)).expect("a good kubeconfig"))
}

fn answers(request: &Request) -> Reply {
    let part = |from: usize, next: &str| {
        let items: Vec<_> = (from..from + 2).map(|n| object("ConfigMap", &format!("c{n}"))).collect();
        Reply::Json(200, json!({"kind": "ConfigMapList", "metadata": {"continue": next}, "items": items}))
    };
    match request.line.as_str() {
        "GET /api/v1" => discovery(&KINDS),
        "GET /api/v1/namespaces/a/configmaps/c" => Reply::Json(200, object("ConfigMap", "c")),
        "GET /api/v1/nodes/n" => Reply::Json(200, object("Node", "n")),
        "GET /api/v1/configmaps?limit=500" => part(0, "x=/1"),
        "GET /api/v1/configmaps?limit=500&continue=x%3D%2F1" => part(2, ""),
        line if line.starts_with("GET /api/v1/namespaces/a/configmaps?limit=500&labelSelector=") => {
            part(0, "")
        }
        "GET /api/v1/secrets?limit=500" => refusal(403, "secrets is forbidden"),
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            Reply::Json(201, json!({"status": {"allowed": true, "reason": "RBAC"}}))
        }
        _ => refusal(404, "not found"),
    }
}

#[test]
fn objects_are_read_by_requests_with_the_token_and_kept() {
    let api = Api::new(answers);
    let cluster = Cluster::new(connection(&api));
    let one = wanted(json!({"name": "c", "namespace": "a"}));
    for _ in 0..3 {
        let found = parsed(&cluster.get(&one, soon()).expect("there"));
        assert_eq!(found["data"], json!({"x": "1", "y": "2"}));
        assert_eq!(found["metadata"], json!({"name": "c", "namespace": "a", "annotations": {"k": "v"}}));
    }
    assert_eq!(api.lines(), ["GET /api/v1", "GET /api/v1/namespaces/a/configmaps/c"]);
    assert!(api.requests().iter().all(|one| one.authorization == format!("Bearer {TOKEN}")));
    let anew = wanted(json!({"name": "c", "namespace": "a", "disable_cache": true}));
    cluster.get(&anew, soon()).expect("there");
    assert_eq!(api.lines().len(), 3);
    let node = wanted(json!({"kind": "Node", "name": "n", "namespace": "ignored"}));
    assert_eq!(parsed(&cluster.get(&node, soon()).expect("there"))["kind"], "Node");
}

#[test]
fn lists_are_read_in_parts_with_selectors_and_masks() {
    let api = Api::new(answers);
    let cluster = Cluster::new(connection(&api));
    let found = parsed(&cluster.list(&wanted(json!({})), None, soon()).expect("a list"));
    assert_eq!(found["kind"], "ConfigMapList");
    let names: Vec<_> =
        found["items"].as_array().expect("items").iter().map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(names, ["c0", "c1", "c2", "c3"]);
    assert_eq!(found["items"][0]["kind"], "ConfigMap");
    let some = wanted(
        json!({"label_selector": "app in (a,b)", "field_selector": "metadata.name=x", "field_masks": ["data.x"]}),
    );
    let found = parsed(&cluster.list(&some, Some("a"), soon()).expect("a list"));
    assert_eq!(found["items"][0]["data"], json!({"x": "1"}));
    let last = api.lines().pop().expect("a request");
    let query = "labelSelector=app%20in%20%28a%2Cb%29&fieldSelector=metadata.name%3Dx";
    assert_eq!(last, format!("GET /api/v1/namespaces/a/configmaps?limit=500&{query}"));
}

#[test]
fn what_cannot_be_read_is_told_and_asked_again() {
    let api = Api::new(answers);
    let cluster = Cluster::new(connection(&api));
    for (content, is_list, told) in [
        (
            json!({"name": "x", "namespace": "a"}),
            false,
            "Cannot find v1/ConfigMap named 'x' inside of namespace 'Some(\"a\")'",
        ),
        (json!({"name": "x"}), false, "Resource v1/ConfigMap is namespaced, but no namespace was provided"),
        (json!({"kind": "Thing"}), true, "Cannot find resource v1/Thing"),
        (
            json!({"api_version": "x.io/v1"}),
            true,
            "error finding resource x.io/v1 / ConfigMap: the API server answers 404: not found",
        ),
        (json!({"kind": "Secret"}), true, "the API server answers 403: secrets is forbidden"),
        // Names stay one part of the path.
        (
            json!({"name": "../secrets/s", "namespace": "a"}),
            false,
            "Cannot find v1/ConfigMap named '../secrets/s'",
        ),
        (json!({"name": "..", "namespace": "a"}), false, "name: found '..', expected a name"),
        (json!({"api_version": "../v1"}), true, "apiVersion: found '..', expected a name"),
    ] {
        let wanted = wanted(content);
        let found = if is_list { cluster.list(&wanted, None, soon()) } else { cluster.get(&wanted, soon()) };
        let found = found.expect_err(told);
        assert!(found.starts_with(told), "{found}");
    }
    let nodes = wanted(json!({"kind": "Node"}));
    let found = cluster.list(&nodes, Some("a"), soon()).expect_err("no namespace");
    assert!(found.starts_with("resource v1/Node is cluster wide"), "{found}");
    assert!(api.lines().contains(&"GET /api/v1/namespaces/a/configmaps/..%2Fsecrets%2Fs".to_owned()));
    let before = api.lines().len();
    for _ in 0..2 {
        cluster.list(&wanted(json!({"kind": "Secret"})), None, soon()).expect_err("refused");
    }
    assert_eq!(api.lines().len(), before + 2);
}

#[test]
fn answers_that_are_none_are_told() {
    for (body, told) in [
        (json!([]), "found no object"),
        (json!({}), "the API server answers no list"),
        (json!({"items": [1]}), "a list with an item that is no object"),
        (json!({"items": 1}), "the API server answers no list"),
    ] {
        let api = Api::new(move |request| match request.line.as_str() {
            "GET /api/v1" => discovery(&KINDS),
            _ => Reply::Json(200, body.clone()),
        });
        let found = Cluster::new(connection(&api)).list(&wanted(json!({})), None, soon()).expect_err(told);
        assert!(found.contains(told), "{found}");
    }
    let api = Api::new(|_| Reply::Json(200, json!({"metadata": 1, "resources": [1, {"kind": "ConfigMap"}]})));
    let found = Cluster::new(connection(&api)).list(&wanted(json!({})), None, soon()).expect_err("no kind");
    assert!(found.starts_with("Cannot find resource v1/ConfigMap"), "{found}");
    let api = Api::new(|request| match request.line.as_str() {
        "GET /api/v1" => discovery(&KINDS),
        _ => Reply::Json(200, json!({"metadata": [], "kind": 1})),
    });
    let one = wanted(json!({"name": "c", "namespace": "a"}));
    assert!(Cluster::new(connection(&api)).get(&one, soon()).is_ok());
}

#[test]
fn an_api_server_that_does_not_answer_costs_the_time_of_the_evaluation() {
    let api = Api::new(|_| Reply::Silence);
    let cluster = Arc::new(Cluster::new(connection(&api)));
    let two: Vec<_> = (0..2)
        .map(|_| {
            let cluster = Arc::clone(&cluster);
            std::thread::spawn(move || {
                cluster.list(&wanted(json!({})), None, Instant::now() + Duration::from_millis(200))
            })
        })
        .collect();
    for one in two {
        one.join().expect("ends").expect_err("no answer");
    }
    let late = cluster.list(&wanted(json!({})), None, Instant::now()).expect_err("late");
    assert!(late.contains("the time of the evaluation has passed"), "{late}");
}

#[tokio::test]
async fn a_policy_reads_the_kinds_that_its_document_grants() {
    let Some(module) = program() else { return };
    let api = Api::new(answers);
    let folder = Folder::new();
    folder.write("module.wasm", module);
    let can_i = json!({"subject_access_review": {"user": "ann", "groups": ["g"],
        "resource_attributes": {"verb": "get", "resource": "pods", "namespace": "a"}}, "disable_cache": false});
    let payload = |kind: &str| json!({"api_version": "v1", "kind": kind, "name": "c", "namespace": "a"});
    let policies: Vec<_> = [
        ("get_resource", payload("ConfigMap")),
        ("get_resource", payload("Secret")),
        ("can_i", can_i),
    ]
    .into_iter()
    .enumerate()
    .map(|(number, (operation, payload))| {
        let settings = json!({"do": format!("kubernetes {operation}"), "payload": payload});
        let granted = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
        let spec =
            json!({"module": "file:module.wasm", "settings": settings, "contextAwareResources": granted});
        document(&format!("p{number}"), spec)
    })
    .collect();
    folder.write("policies.json", json!({"kind": "List", "items": policies}).to_string());
    let cluster = Some(Arc::new(Cluster::new(connection(&api))));
    let sources = Sources { policies: vec![folder.0.clone()], cluster, ..Sources::default() };
    let found = Loader::new(sources, quick()).expect("an engine").ready().expect("good policies");
    let found: Vec<_> = found.into_iter().map(Arc::new).collect();
    let (result, review) = ask(&found[0], &request(), None).await;
    assert!(result.is_ok());
    assert_eq!(parsed(review.warnings()[0].as_bytes())["metadata"]["name"], "c");
    let refused = denial(ask(&found[1], &request(), None).await.0).to_string();
    assert!(refused.starts_with("Policy has not been granted access to Kubernetes v1/Secret"), "{refused}");
    assert!(!api.lines().iter().any(|line| line.contains("secrets")));
    let (result, review) = ask(&found[2], &request(), None).await;
    assert!(result.is_ok());
    assert_eq!(parsed(review.warnings()[0].as_bytes()), json!({"allowed": true, "reason": "RBAC"}));
    let asked = api.requests().pop().expect("a request");
    let spec = json!({"user": "ann", "groups": ["g"],
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}});
    assert_eq!(parsed(asked.body.as_bytes())["spec"], spec);
}

/// Lists of policies, and a watch whose events a test sends.
fn policies_of(listed: Vec<Value>) -> (Api, Sender<Value>) {
    let (send, events) = channel();
    let events = Mutex::new(Some(events));
    let api = Api::new(move |request| {
        let of_policies =
            request.line.starts_with("GET /apis/policies.kubewarden.io/v1/clusteradmissionpolicies");
        if request.line.contains("groups") {
            return refusal(404, "there is no such kind");
        }
        if request.line.contains("watch=true") {
            let mine = if of_policies { events.lock().expect("whole").take() } else { None };
            return mine.map_or(Reply::Silence, Reply::Events);
        }
        let items = if of_policies { listed.clone() } else { Vec::new() };
        Reply::Json(200, json!({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": items}))
    });
    (api, send)
}

#[test]
fn policies_of_a_cluster_are_followed_and_a_bad_one_costs_no_other() {
    let folder = Folder::new();
    folder.write("example.com/one:v1", guest("", "", r#"{"accepted":true}"#));
    let spec = json!({"module": "registry://example.com/one:v1"});
    let mut good = document("good", spec.clone());
    // Items of a list have neither.
    good.as_object_mut().expect("one").remove("kind");
    let bad = document("bad", json!({"module": "registry://example.com/absent:v1"}));
    let relative = document("relative", json!({"module": "file:module.wat"}));
    let (api, send) = policies_of(vec![good, bad, relative]);
    let following = Following::begin(&connection(&api)).expect("threads");
    following.wait();
    let sources = Sources {
        modules: vec![folder.0.clone()],
        following: Some(Arc::clone(&following)),
        ..Sources::default()
    };
    let mut loader = Loader::new(sources, quick()).expect("an engine");
    assert_eq!(loader.load().expect("some").len(), 1);
    let (applied, counts) = channel();
    std::thread::spawn(move || {
        loader.follow(Duration::from_millis(5), |policies| {
            applied.send(policies.len()).map_err(|gone| vec![gone.to_string()])
        });
    });
    let wait =
        |count: usize| while counts.recv_timeout(Duration::from_secs(60)).expect("applied") != count {};
    send.send(json!({"type": "BOOKMARK", "object": {}})).expect("a watch");
    send.send(json!({"type": "ADDED", "object": document("more", spec)})).expect("a watch");
    wait(2);
    send.send(json!({"type": "DELETED", "object": document("good", json!({}))})).expect("a watch");
    wait(1);
    for odd in [json!(3), json!({"type": "ADDED", "object": "x"}), json!({"object": []})] {
        // After the first, the watch has ended.
        let _ = send.send(odd);
    }
    // It lists anew.
    wait(1);
    let lists = "GET /apis/policies.kubewarden.io/v1/clusteradmissionpolicies";
    assert!(api.lines().iter().filter(|line| *line == lists).count() >= 2);
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_told() {
    let (api, folder) = (Api::new(answers), Folder::new());
    for (user, told) in [
        (json!({"exec": {"command": "login"}}), "users 'u': exec is not supported"),
        (
            json!({"client-certificate-data": "LQ=="}),
            "users: client-certificate and client-key belong together",
        ),
        (json!({"client-key-data": "?"}), "client-key-data: Invalid"),
        (json!({"client-certificate": "absent.crt"}), "absent.crt: No such file"),
    ] {
        let file = api.kubeconfig(&folder, user);
        let found = Connection::new(Some(&file)).map(|_| ()).expect_err(told);
        assert!(found.contains(told), "{found}");
    }
    folder.write("kubeconfig", "current-context: other");
    let found = Connection::new(Some(&folder.0.join("kubeconfig"))).map(|_| ()).expect_err("no context");
    assert!(found.ends_with("contexts: there is no entry 'other'"), "{found}");
    assert!(Connection::new(Some(Path::new("/no/such"))).is_err());
}
