//! Mutants of the translation between the eras in `proto::bridge`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "bridge: a dual server is translated to",
        file: "bridge.rs",
        code: "_ if spoken.serves_era(client) => Translation::None,",
        mutated: "_ if spoken.serves_era(client) && spoken != Revisions::BOTH => Translation::None,",
    },
    Mutant {
        name: "bridge up: the state of the gateway reaches the server",
        file: "bridge/up.rs",
        code: "\"inputResponses\" | \"requestState\" => Member::Remove,",
        mutated: "\"inputResponses\" => Member::Remove,",
    },
    Mutant {
        name: "bridge up: all of `_meta` is removed",
        file: "bridge/up.rs",
        code: "\"_meta\" => filter_meta(raw, |key| REQUEST_META.contains(&key)),",
        mutated: "\"_meta\" => filter_meta(raw, |_| true),",
    },
    Mutant {
        name: "bridge up: roots are said to report changes",
        file: "bridge/up.rs",
        code: "mapped[\"roots\"] = json!({});",
        mutated: "mapped[\"roots\"] = object(&declared[\"roots\"]);",
    },
    Mutant {
        name: "bridge up: tasks of sessions are offered",
        file: "bridge/up.rs",
        code: "members.remove(\"tasks\");",
        mutated: "members.remove(\"task\");",
    },
    Mutant {
        name: "bridge up: caching hints of a server with sessions are passed on",
        file: "bridge/up.rs",
        code: "\"resultType\" | \"ttlMs\" | \"cacheScope\" => Member::Remove,",
        mutated: "\"resultType\" => Member::Remove,",
    },
    Mutant {
        name: "bridge up: invalid header annotations stay",
        file: "bridge/up.rs",
        code: "if HeaderParams::of_schema(&schema).is_ok() {",
        mutated: "if true || HeaderParams::of_schema(&schema).is_ok() {",
    },
    Mutant {
        name: "bridge up: -32002 of any method is mapped",
        file: "bridge/up.rs",
        code: "RESOURCE_NOT_FOUND if method == \"resources/read\" =>",
        mutated: "RESOURCE_NOT_FOUND =>",
    },
    Mutant {
        name: "bridge up: reserved codes of the server are passed on",
        file: "bridge/up.rs",
        code: "-32099..=-32020 => ErrorReply::Error(upstream(error)),",
        mutated: "-32099..=-32030 => ErrorReply::Error(upstream(error)),",
    },
    Mutant {
        name: "bridge up: a client that opens no URLs is asked to",
        file: "bridge/up.rs",
        code: "Some(_) if !client.elicitation_url => {",
        mutated: "Some(_) if false && !client.elicitation_url => {",
    },
    Mutant {
        name: "bridge up: a client that answers roots only does not hold its child",
        file: "bridge/up.rs",
        code: "client.sampling || client.elicitation_form || client.elicitation_url || client.roots;",
        mutated: "client.sampling || client.elicitation_form || client.elicitation_url;",
    },
    Mutant {
        name: "bridge up: an undeclared question reaches the client",
        file: "bridge/up.rs",
        code: "let Some(lacks) = client.lacks_for(asked, &params) else {",
        mutated: "let Some(lacks) = client.lacks_for(asked, &params).filter(|_| false) else {",
    },
    Mutant {
        name: "bridge up: an expired elicitation is an error",
        file: "bridge/up.rs",
        code: "InputMethod::Elicit => Ok(Bytes::from_static(b\"{\\\"action\\\":\\\"cancel\\\"}\")),",
        mutated: "InputMethod::Elicit => Err(RpcError::internal(\"the client did not answer\")),",
    },
    Mutant {
        name: "bridge up: log messages below the level are delivered",
        file: "bridge/up.rs",
        code: "wanted.is_some_and(|least| own.is_none_or(|own| own >= least))",
        mutated: "wanted.is_some_and(|least| own.is_none_or(|own| own <= least))",
    },
    Mutant {
        name: "bridge lease: capabilities in another order are another client",
        file: "bridge/fingerprint.rs",
        code: "Value::Bool(_) => key.push_str(\"{}\"),",
        mutated: "Value::Bool(_) => key.push_str(\"true\"),",
    },
    Mutant {
        name: "bridge lease: clients with other modes of elicitation share a process",
        file: "bridge/fingerprint.rs",
        code: "Value::Object(members) => write_members(key, members.iter()),",
        mutated: "Value::Object(_) => key.push_str(\"{}\"),",
    },
    Mutant {
        name: "bridge down: modern keys of the client are passed on",
        file: "bridge/down.rs",
        code: "let kept = rewrite(raw.as_bytes(), &added, |key, _| match key.starts_with(MODERN_META) {",
        mutated: "let kept = rewrite(raw.as_bytes(), &added, |key, _| match key.is_empty() {",
    },
    Mutant {
        name: "bridge down: the client's `task` is passed on",
        file: "bridge/down.rs",
        code: "\"task\" | \"inputResponses\" | \"requestState\" => Member::Remove,",
        mutated: "\"inputResponses\" | \"requestState\" => Member::Remove,",
    },
    Mutant {
        name: "bridge down: old revisions declare modes of elicitation",
        file: "bridge/down.rs",
        code: "let is_whole = version.has_elicitation_modes() && declared[\"elicitation\"].is_object();",
        mutated: "let is_whole = declared[\"elicitation\"].is_object();",
    },
    Mutant {
        name: "bridge down: extensions are offered to a session",
        file: "bridge/down.rs",
        code: "members.remove(\"extensions\");",
        mutated: "members.remove(\"extension\");",
    },
    Mutant {
        name: "bridge down: -32021 is passed on",
        file: "bridge/down.rs",
        code: "code::MISSING_CAPABILITY => {",
        mutated: "code::MISSING_CAPABILITY if false => {",
    },
    Mutant {
        name: "bridge down: caching hints reach a session",
        file: "bridge/down/content.rs",
        code: "\"resultType\" | \"ttlMs\" | \"cacheScope\" => Member::Remove,",
        mutated: "\"resultType\" => Member::Remove,",
    },
    Mutant {
        name: "bridge down: structured content that is a list stays",
        file: "bridge/down/content.rs",
        code: "member(json, \"structuredContent\").filter(|raw| !raw.starts_with('{'))",
        mutated: "member(json, \"structuredContent\").filter(|raw| raw.starts_with('\"'))",
    },
    Mutant {
        name: "bridge down: links reach clients of 2025-03-26",
        file: "bridge/down/content.rs",
        code: "Version::V2025_03_26 => &[\"resource_link\"],",
        mutated: "Version::V2025_03_26 => &[],",
    },
    Mutant {
        name: "bridge down: a URL question has no id",
        file: "bridge/down/input.rs",
        code: "            if is_url {\n                let added",
        mutated: "            if false && is_url {\n                let added",
    },
    Mutant {
        name: "bridge down: a list of contents reaches old clients",
        file: "bridge/down/input.rs",
        code: "\"messages\" => split_messages(raw),",
        mutated: "\"messages\" => Member::Keep,",
    },
    Mutant {
        name: "bridge down: a refused form fails the call",
        file: "bridge/down/input.rs",
        code: "(InputMethod::Elicit, Err(_)) => RoundAnswer::Response(Bytes::from_static(b\"{\\\"action\\\":\\\"cancel\\\"}\")),",
        mutated: "(InputMethod::Elicit, Err(error)) => RoundAnswer::Fails(error),",
    },
    Mutant {
        name: "bridge down: the state of the server is written anew",
        file: "bridge/down/input.rs",
        code: "        added.extend_from_slice(state);\n",
        mutated: "        added.extend_from_slice(&state.to_ascii_lowercase());\n",
    },
];
