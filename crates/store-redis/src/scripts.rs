//! The scripts. Each is one atomic step of the store.

use redis::{Cmd, cmd};
use rethread_proto::ordinals::SKIPPED_ORDINALS;
use rethread_proto::stream::retention::event_cost;
use std::sync::LazyLock;

/// A script and its hash.
pub(crate) struct Script {
    pub(crate) code: String,
    hash: String,
    /// Whether the script is idempotent, so that it may be repeated after a lost reply.
    pub(crate) repeatable: bool,
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let constants = format!("local EVENT_COST, SKIPPED = {}, {SKIPPED_ORDINALS}\n", event_cost(0));
        let code = constants + &parts.concat();
        Script {
            hash: redis::Script::new(&code).get_hash().to_owned(),
            code,
            repeatable: true,
        }
    }

    /// A call of the script. Its arguments follow.
    pub(crate) fn call(&self, key: &str) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.hash).arg(1).arg(key);
        call
    }

    /// Loads the script into the server.
    pub(crate) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(&self.code);
        load
    }
}

macro_rules! scripts {
    ($($name:ident: $($part:literal)*;)*) => {
        /// All scripts.
        pub(crate) struct Scripts {
            $(pub(crate) $name: Script,)*
        }

        impl Scripts {
            fn new() -> Self {
                Scripts {
                    $($name: Script::new(&[$(include_str!(concat!("scripts/", $part, ".lua"))),*]),)*
                }
            }

            /// Every script, to load it.
            pub(crate) fn all(&self) -> Vec<&Script> {
                vec![$(&self.$name),*]
            }
        }
    };
}

scripts! {
    append: "prelude" "stream" "append";
    read: "prelude" "read";
    reader: "prelude" "reader";
    watch: "prelude" "watch";
    forget: "prelude" "lifecycle" "forget";
    end: "prelude" "lifecycle" "end";
    expire: "prelude" "lifecycle" "expire";
    touch: "prelude" "touch";
    create: "prelude" "lifecycle" "draw" "create";
    open: "prelude" "draw" "open";
    draw: "prelude" "draw" "draw_more";
    load: "prelude" "load";
    update: "prelude" "lifecycle" "update";
    views: "prelude" "views";
    restore_view: "prelude" "draw" "listeners" "restore_view";
    owner: "prelude" "owner";
    enqueue: "prelude" "enqueue";
    bind: "prelude" "stream" "bind";
    listen: "prelude" "listeners" "listen";
    publish: "publish";
    broadcasts: "broadcasts";
    join: "names" "join";
    member: "names" "member";
    deliver: "deliver";
    claim_mail: "claim_mail";
    remove_mail: "claim_mail";
    mailbox: "mailbox";
}

/// The scripts of this version.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let mut scripts = Scripts::new();
    scripts.claim_mail.repeatable = false; // a repetition would report that another node claimed the mail
    scripts
});
