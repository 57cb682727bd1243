-- The schema of a new SQLite database: what all migrations lead to, so that the first start need not load them.
-- Written by `python -m tests.support.sqlite_schema`; a test compares it with the migrations.
CREATE TABLE alembic_version ( version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY
    (version_num) );
CREATE TABLE log_heads ( id SMALLINT NOT NULL, next_position BIGINT NOT NULL, epoch TEXT NOT NULL, incarnation BIGINT
    NOT NULL, registry_version BIGINT NOT NULL, parts_version BIGINT DEFAULT 1 NOT NULL, topics_version BIGINT DEFAULT
    1 NOT NULL, topics BIGINT DEFAULT 0 NOT NULL, unsynced TEXT DEFAULT '' NOT NULL, instance TEXT DEFAULT '' NOT
    NULL, flushes BIGINT DEFAULT 0 NOT NULL, record_bytes BIGINT DEFAULT 0 NOT NULL, PRIMARY KEY (id), CONSTRAINT
    one_head CHECK (id = 1) );
CREATE TABLE topics ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, next_seq BIGINT NOT NULL,
    bytes BIGINT NOT NULL, ids BIGINT NOT NULL, evicted_seq BIGINT NOT NULL, evicted_position BIGINT NOT NULL,
    lost_position BIGINT NOT NULL, created_at BIGINT NOT NULL, form TEXT DEFAULT 'event' NOT NULL, instance BIGINT
    DEFAULT 0 NOT NULL, config TEXT DEFAULT '' NOT NULL, durability TEXT DEFAULT 'fsync' NOT NULL, deleted BIGINT
    DEFAULT 0 NOT NULL, written_at BIGINT, due_at BIGINT, tree BIGINT, next_leaf BIGINT DEFAULT 0 NOT NULL, UNIQUE
    (name) );
CREATE TABLE event_ids ( topic_id BIGINT NOT NULL, event_id TEXT NOT NULL, position BIGINT NOT NULL, first_position
    BIGINT, gone_at BIGINT, expires_at BIGINT, digest BLOB, PRIMARY KEY (topic_id, event_id) ) WITHOUT ROWID;
CREATE INDEX event_ids_gone ON event_ids (gone_at) WHERE gone_at IS NOT NULL;
CREATE TABLE blocks ( position BIGINT NOT NULL, topic_id BIGINT NOT NULL, seq BIGINT NOT NULL, records BIGINT NOT
    NULL, bytes BIGINT NOT NULL, recorded_at BIGINT NOT NULL, own SMALLINT NOT NULL, expires_first BIGINT, types TEXT
    NOT NULL, sources TEXT NOT NULL, paths TEXT NOT NULL, text TEXT NOT NULL, tree BIGINT, leaf BIGINT, PRIMARY KEY
    (position), CONSTRAINT blocks_topic_seq UNIQUE (topic_id, seq) );
CREATE INDEX blocks_own ON blocks (topic_id, position) WHERE own = 1;
CREATE INDEX blocks_topic_position ON blocks (topic_id, position);
CREATE TABLE cursors ( name TEXT NOT NULL, kind TEXT NOT NULL, topic_id BIGINT NOT NULL, position BIGINT NOT NULL,
    until BIGINT, sent_upto BIGINT NOT NULL, sent_epoch TEXT NOT NULL, rewound_from BIGINT, selector_version BIGINT
    NOT NULL, selection TEXT NOT NULL, protocol TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, since BIGINT
    NOT NULL, paused_at BIGINT, paused_by TEXT NOT NULL, attempts BIGINT NOT NULL, attempted_upto BIGINT NOT NULL,
    attempted_at BIGINT, retry_at BIGINT, last_error TEXT NOT NULL, succeeded_at BIGINT, created_at BIGINT NOT NULL,
    failing_since BIGINT, hold BIGINT, started_after BIGINT, PRIMARY KEY (name) );
CREATE TABLE selectors ( cursor TEXT NOT NULL, version BIGINT NOT NULL, selection TEXT NOT NULL, declared_at BIGINT
    NOT NULL, PRIMARY KEY (cursor, version) );
CREATE TABLE batches ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, cursor TEXT NOT NULL, batch_id TEXT NOT NULL,
    epoch TEXT NOT NULL, incarnation BIGINT NOT NULL, "after" BIGINT NOT NULL, upto BIGINT NOT NULL, events BIGINT NOT
    NULL, bytes BIGINT NOT NULL, selector_version BIGINT NOT NULL, exceptions TEXT NOT NULL, picked TEXT NOT NULL,
    attempts BIGINT NOT NULL, sent_at BIGINT NOT NULL, acked_at BIGINT NOT NULL, status INTEGER NOT NULL, protocol
    TEXT NOT NULL, key_id TEXT NOT NULL, receipt TEXT NOT NULL );
CREATE INDEX batches_acked ON batches (acked_at);
CREATE INDEX batches_cursor_upto ON batches (cursor, upto);
CREATE TABLE dead_letters ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, cursor TEXT NOT NULL, position BIGINT NOT
    NULL, topic_id BIGINT NOT NULL, event_id TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL, attempts
    BIGINT NOT NULL, parked_at BIGINT NOT NULL, CONSTRAINT dead_letters_cursor_position UNIQUE (cursor, position) );
CREATE INDEX dead_letters_parked ON dead_letters (parked_at);
CREATE TABLE inbound_gaps ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, topic_id BIGINT NOT NULL, node TEXT NOT
    NULL, epoch TEXT NOT NULL, "after" BIGINT NOT NULL, upto BIGINT NOT NULL, reason TEXT NOT NULL, recorded_at BIGINT
    NOT NULL , book TEXT DEFAULT '' NOT NULL);
CREATE TABLE inbound_links ( topic_id BIGINT NOT NULL, node TEXT NOT NULL, epoch TEXT NOT NULL, incarnation BIGINT NOT
    NULL, base BIGINT NOT NULL, upto BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (topic_id, node) );
CREATE TABLE nonces ( group_name TEXT NOT NULL, key_id TEXT NOT NULL, nonce TEXT NOT NULL, keep_until BIGINT NOT NULL,
    PRIMARY KEY (group_name, key_id, nonce) );
CREATE INDEX nonces_keep_until ON nonces (keep_until);
CREATE TABLE resources ( api_version TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, annotations TEXT NOT NULL,
    spec TEXT NOT NULL, generation BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, labels
    TEXT DEFAULT '{}' NOT NULL, PRIMARY KEY (api_version, kind, name) );
CREATE TABLE plugin_runs ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, plugin TEXT NOT NULL, "trigger" TEXT NOT
    NULL, subscription TEXT NOT NULL, cursor TEXT NOT NULL, "after" BIGINT NOT NULL, upto BIGINT NOT NULL, group_name
    TEXT NOT NULL, event_ids TEXT NOT NULL, coalesced TEXT NOT NULL, events BIGINT NOT NULL, attempt BIGINT NOT NULL,
    status TEXT NOT NULL, started_at BIGINT NOT NULL, completed_at BIGINT, exit_code INTEGER, stdout_digest TEXT NOT
    NULL, stderr TEXT NOT NULL, error TEXT NOT NULL, source TEXT NOT NULL, generation BIGINT );
CREATE INDEX plugin_runs_subscription ON plugin_runs (subscription, id);
CREATE INDEX plugin_runs_cursor ON plugin_runs (cursor, id);
CREATE INDEX plugin_runs_plugin ON plugin_runs (plugin, id);
CREATE INDEX plugin_runs_completed ON plugin_runs (completed_at);
CREATE TABLE parts ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, owner TEXT NOT NULL,
    group_name TEXT NOT NULL, plugin TEXT NOT NULL, generation BIGINT NOT NULL, observed_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL, ends_at BIGINT NOT NULL, digest TEXT NOT NULL, resources TEXT NOT NULL, directives
    TEXT NOT NULL, action_plans TEXT NOT NULL, event_ids TEXT NOT NULL, subjects TEXT NOT NULL, ends TEXT NOT NULL,
    grace BIGINT NOT NULL, revision BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, UNIQUE
    (source) );
CREATE INDEX parts_owner ON parts (owner);
CREATE INDEX parts_ends ON parts (ends_at);
CREATE INDEX parts_revision ON parts (revision);
CREATE TABLE part_claims ( owner TEXT NOT NULL, api_version TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    part_id BIGINT NOT NULL, since BIGINT NOT NULL, ends_at BIGINT NOT NULL, captures TEXT NOT NULL, PRIMARY KEY
    (owner, api_version, kind, name) );
CREATE INDEX part_claims_part ON part_claims (part_id);
CREATE INDEX part_claims_captures ON part_claims (captures) WHERE captures <> '';
CREATE TABLE part_subjects ( owner TEXT NOT NULL, subject TEXT NOT NULL, part_id BIGINT NOT NULL, PRIMARY KEY (owner,
    subject, part_id) );
CREATE INDEX part_subjects_part ON part_subjects (part_id);
CREATE TABLE effective_config ( id SMALLINT NOT NULL, generation BIGINT NOT NULL, etag TEXT NOT NULL, registry_version
    BIGINT NOT NULL, parts_version BIGINT NOT NULL, changed_at BIGINT NOT NULL, PRIMARY KEY (id), CONSTRAINT
    one_effective_config CHECK (id = 1) );
CREATE INDEX topics_due ON topics (due_at) WHERE due_at IS NOT NULL;
CREATE TABLE topic_losses ( topic_id BIGINT NOT NULL, first_seq BIGINT NOT NULL, last_seq BIGINT NOT NULL, reason TEXT
    NOT NULL, PRIMARY KEY (topic_id, first_seq) );
CREATE TABLE write_keys ( topic_id BIGINT NOT NULL, "key" TEXT NOT NULL, first_seq BIGINT NOT NULL, last_seq BIGINT
    NOT NULL, keep_until BIGINT NOT NULL, PRIMARY KEY (topic_id, "key") );
CREATE INDEX write_keys_keep_until ON write_keys (keep_until);
CREATE TABLE routers ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, source_id BIGINT NOT NULL,
    dest_id BIGINT NOT NULL, options TEXT NOT NULL, seq BIGINT NOT NULL, forwarded BIGINT NOT NULL, refused BIGINT NOT
    NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, UNIQUE (name) );
CREATE INDEX routers_source ON routers (source_id);
CREATE INDEX routers_dest ON routers (dest_id);
CREATE TABLE queues ( topic_id BIGINT NOT NULL, claimed_seq BIGINT NOT NULL, held BIGINT NOT NULL, delayed BIGINT NOT
    NULL, dead_lettered BIGINT NOT NULL, PRIMARY KEY (topic_id) );
CREATE TABLE leases ( topic_id BIGINT NOT NULL, seq BIGINT NOT NULL, node TEXT NOT NULL, lease_id TEXT NOT NULL,
    free_at BIGINT, deliveries BIGINT NOT NULL, size BIGINT NOT NULL, length BIGINT DEFAULT 0 NOT NULL, PRIMARY KEY
    (topic_id, seq) ) WITHOUT ROWID;
CREATE INDEX leases_free ON leases (topic_id, free_at, seq) WHERE free_at IS NOT NULL;
CREATE TABLE api_keys ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, digest TEXT NOT NULL,
    scopes TEXT NOT NULL, prefixes TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT, revoked_at BIGINT,
    surface TEXT DEFAULT 'api' NOT NULL, label TEXT DEFAULT '' NOT NULL, identity TEXT DEFAULT '' NOT NULL, UNIQUE
    (digest), UNIQUE (name) );
CREATE TABLE inbound_batches ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, topic_id BIGINT NOT NULL, node TEXT NOT
    NULL, batch_id TEXT NOT NULL, key_id TEXT NOT NULL, covers TEXT NOT NULL, digest TEXT NOT NULL, receipt TEXT NOT
    NULL, recorded_at BIGINT NOT NULL, positions TEXT DEFAULT '' NOT NULL, CONSTRAINT inbound_batches_link_batch
    UNIQUE (topic_id, node, batch_id) );
CREATE INDEX inbound_batches_recorded ON inbound_batches (recorded_at);
CREATE TABLE refusals ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, group_name TEXT NOT NULL, peer TEXT NOT NULL,
    key_id TEXT NOT NULL, reason TEXT NOT NULL, count BIGINT NOT NULL, first_at BIGINT NOT NULL, last_at BIGINT NOT
    NULL );
CREATE INDEX refusals_last ON refusals (last_at);
CREATE TABLE forgotten ( book TEXT NOT NULL, upto BIGINT NOT NULL, PRIMARY KEY (book) );
CREATE INDEX event_ids_refreshed ON event_ids (topic_id, position, first_position) WHERE first_position IS NOT NULL;
CREATE INDEX batches_picked ON batches (cursor) WHERE picked <> '';
CREATE INDEX dead_letters_topic ON dead_letters (topic_id, id);
CREATE INDEX inbound_gaps_topic ON inbound_gaps (topic_id);
CREATE INDEX cursors_kind ON cursors (kind, name);
CREATE TABLE id_conflicts ( topic_id BIGINT NOT NULL, owner TEXT NOT NULL, owner_key TEXT NOT NULL, source TEXT NOT
    NULL, key_id TEXT NOT NULL, times BIGINT NOT NULL, event_id TEXT NOT NULL, first_at BIGINT NOT NULL, last_at
    BIGINT NOT NULL, PRIMARY KEY (topic_id, owner, owner_key, source, key_id) );
CREATE INDEX id_conflicts_last ON id_conflicts (last_at);
CREATE TABLE callback_attempts ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, cursor TEXT NOT NULL, message_id TEXT
    NOT NULL, "after" BIGINT NOT NULL, upto BIGINT NOT NULL, shape TEXT NOT NULL, events BIGINT NOT NULL, omitted TEXT
    NOT NULL, attempt BIGINT NOT NULL, answers BIGINT NOT NULL, status INTEGER NOT NULL, reason TEXT NOT NULL, detail
    TEXT NOT NULL, started_at BIGINT NOT NULL, first_at BIGINT NOT NULL, duration BIGINT NOT NULL, address TEXT NOT
    NULL, key_ids TEXT NOT NULL, answer TEXT NOT NULL, retry_at BIGINT, folded BIGINT NOT NULL );
CREATE INDEX callback_attempts_cursor ON callback_attempts (cursor, id);
CREATE INDEX callback_attempts_started ON callback_attempts (started_at);
CREATE INDEX batches_callbacks ON batches (cursor, id) WHERE protocol = 'callback';
CREATE INDEX batches_gaps ON batches (cursor) WHERE protocol = 'gap';
CREATE TABLE rm_topics ( name TEXT NOT NULL, publisher TEXT NOT NULL, events BIGINT NOT NULL, base BIGINT NOT NULL,
    recent TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (name) );
CREATE TABLE rm_subscribers ( identity TEXT NOT NULL, callback TEXT NOT NULL, uuid TEXT NOT NULL, timeout_ms BIGINT
    NOT NULL, max_events BIGINT NOT NULL, sent BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT
    NULL, version BIGINT NOT NULL, PRIMARY KEY (identity) );
CREATE TABLE rm_signing ( identity TEXT NOT NULL, keys TEXT NOT NULL, PRIMARY KEY (identity) );
CREATE TABLE rm_intervals ( subscriber TEXT NOT NULL, topic TEXT NOT NULL, "after" BIGINT NOT NULL, upto BIGINT,
    PRIMARY KEY (subscriber, topic, "after") );
CREATE INDEX rm_intervals_topic ON rm_intervals (topic);
CREATE TABLE console_sessions ( digest TEXT NOT NULL, key_digest TEXT NOT NULL, key_name TEXT NOT NULL, address TEXT
    NOT NULL, created_at BIGINT NOT NULL, used_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (digest) );
CREATE TABLE actions ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, at BIGINT NOT NULL, kind TEXT NOT NULL, who TEXT
    NOT NULL, address TEXT NOT NULL, operation TEXT NOT NULL, object TEXT NOT NULL, arguments TEXT NOT NULL, result
    TEXT NOT NULL, request TEXT NOT NULL, count BIGINT NOT NULL );
CREATE INDEX actions_at ON actions (at);
CREATE TABLE action_answers ( caller TEXT NOT NULL, "key" TEXT NOT NULL, fingerprint TEXT NOT NULL, at BIGINT NOT
    NULL, status INTEGER NOT NULL, answer BLOB, PRIMARY KEY (caller, "key") );
CREATE INDEX action_answers_at ON action_answers (at);
CREATE INDEX dead_letters_cursor ON dead_letters (topic_id, cursor, id);
CREATE INDEX dead_letters_event ON dead_letters (topic_id, event_id);
CREATE INDEX dead_letters_reason ON dead_letters (cursor, reason, id);
CREATE TABLE bulk_jobs ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL, state TEXT NOT NULL,
    action TEXT NOT NULL, group_name TEXT NOT NULL, target TEXT NOT NULL, bound BIGINT NOT NULL, planned_at BIGINT NOT
    NULL, expires_at BIGINT NOT NULL, total BIGINT NOT NULL, exact SMALLINT NOT NULL, key_digest TEXT NOT NULL,
    started_by TEXT NOT NULL, started_at BIGINT, finished_at BIGINT, "after" BIGINT NOT NULL, done BIGINT NOT NULL,
    results TEXT NOT NULL, attempts BIGINT NOT NULL, retry_at BIGINT NOT NULL, detail TEXT NOT NULL, runner TEXT NOT
    NULL, leased_until BIGINT NOT NULL, CONSTRAINT bulk_jobs_token UNIQUE (token) );
CREATE INDEX bulk_jobs_unfinished ON bulk_jobs (id) WHERE finished_at IS NULL;
CREATE TABLE verifications ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, group_name TEXT NOT NULL, peer TEXT NOT
    NULL, run TEXT NOT NULL, at BIGINT NOT NULL, duration BIGINT NOT NULL, why TEXT NOT NULL, compared BIGINT NOT
    NULL, missing BIGINT NOT NULL, extra BIGINT NOT NULL, other BIGINT NOT NULL, unresolved BIGINT NOT NULL, pending
    BIGINT NOT NULL );
CREATE INDEX verifications_peer ON verifications (group_name, peer, id);
CREATE TABLE returned_events ( topic_id BIGINT NOT NULL, event_id TEXT NOT NULL, peer TEXT NOT NULL, at BIGINT NOT
    NULL, batch_id TEXT NOT NULL, unproven TEXT NOT NULL, confirmed BIGINT DEFAULT '0' NOT NULL, PRIMARY KEY
    (topic_id, event_id) );
CREATE TABLE dead_letter_counts ( topic_id BIGINT NOT NULL, cursor TEXT NOT NULL, letters BIGINT NOT NULL, PRIMARY KEY
    (topic_id, cursor) ) WITHOUT ROWID;
CREATE TABLE trees ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, topic_id BIGINT NOT NULL, origin TEXT NOT NULL,
    log_key TEXT NOT NULL, epoch TEXT NOT NULL, opening BLOB NOT NULL, opened_at BIGINT NOT NULL, size BIGINT NOT
    NULL, position BIGINT NOT NULL, trouble TEXT DEFAULT '' NOT NULL, CONSTRAINT trees_origin UNIQUE (origin) );
CREATE INDEX trees_topic ON trees (topic_id);
CREATE TABLE tiles ( tree BIGINT NOT NULL, level BIGINT NOT NULL, number BIGINT NOT NULL, hashes BLOB NOT NULL,
    PRIMARY KEY (tree, level, number) );
CREATE TABLE checkpoints ( tree BIGINT NOT NULL, size BIGINT NOT NULL, root BLOB NOT NULL, note TEXT NOT NULL,
    signed_at BIGINT NOT NULL, PRIMARY KEY (tree, size) );
CREATE INDEX checkpoints_signed ON checkpoints (signed_at);
CREATE TABLE witnessed ( topic_id BIGINT NOT NULL, origin TEXT NOT NULL, node TEXT NOT NULL, log_key TEXT NOT NULL,
    size BIGINT NOT NULL, root BLOB NOT NULL, note TEXT NOT NULL, opened_at BIGINT NOT NULL, witnessed_at BIGINT NOT
    NULL, PRIMARY KEY (topic_id, origin) );
CREATE INDEX witnessed_node ON witnessed (topic_id, node);
CREATE TABLE history_keys ( topic_id BIGINT NOT NULL, node TEXT NOT NULL, kind TEXT NOT NULL, "key" BLOB NOT NULL,
    source TEXT NOT NULL, pin BLOB, learned_at BIGINT NOT NULL, refused BLOB, refused_at BIGINT, PRIMARY KEY
    (topic_id, node, kind) );
CREATE TABLE history_findings ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, topic_id BIGINT NOT NULL, origin TEXT
    NOT NULL, node TEXT NOT NULL, kind TEXT NOT NULL, size BIGINT NOT NULL, other_size BIGINT NOT NULL, note TEXT NOT
    NULL, other_note TEXT NOT NULL, detail TEXT NOT NULL, found_at BIGINT NOT NULL, confirmed_at BIGINT );
CREATE INDEX history_findings_origin ON history_findings (topic_id, origin);
CREATE TABLE witnesses ( tree BIGINT NOT NULL, peer TEXT NOT NULL, size BIGINT NOT NULL, cosigned_at BIGINT, state
    TEXT DEFAULT '' NOT NULL, detail TEXT DEFAULT '' NOT NULL, asked_at BIGINT NOT NULL, PRIMARY KEY (tree, peer) );
CREATE TABLE leaf_hints ( topic_id BIGINT NOT NULL, position BIGINT NOT NULL, upto BIGINT NOT NULL, places TEXT NOT
    NULL, checked BIGINT DEFAULT 0 NOT NULL, due BIGINT, PRIMARY KEY (topic_id, position) );
CREATE INDEX leaf_hints_due ON leaf_hints (topic_id, due) WHERE due IS NOT NULL;
CREATE TABLE refuted_events ( topic_id BIGINT NOT NULL, position BIGINT NOT NULL, event_id TEXT NOT NULL, origin TEXT
    NOT NULL, leaf BIGINT NOT NULL, refuted_at BIGINT NOT NULL, kind TEXT DEFAULT 'refuted' NOT NULL, PRIMARY KEY
    (topic_id, position) );
CREATE INDEX refuted_events_id ON refuted_events (topic_id, event_id);
CREATE TABLE closed_trees ( topic_id BIGINT NOT NULL, origin TEXT NOT NULL, node TEXT NOT NULL, log_key TEXT NOT NULL,
    size BIGINT NOT NULL, root BLOB NOT NULL, opened_at BIGINT NOT NULL, PRIMARY KEY (topic_id, origin) );
CREATE INDEX closed_trees_node ON closed_trees (topic_id, node);
CREATE INDEX history_findings_open ON history_findings (topic_id, node, kind) WHERE confirmed_at IS NULL;
CREATE TABLE id_runs ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, topic_id BIGINT NOT NULL, entries BIGINT NOT
    NULL, last BIGINT NOT NULL, into_run BIGINT, mark BLOB NOT NULL, has_filter SMALLINT DEFAULT 0 NOT NULL );
CREATE INDEX id_runs_topic ON id_runs (topic_id);
CREATE TABLE id_filters ( run BIGINT NOT NULL, part BIGINT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, part) );
CREATE TABLE id_chunks ( run BIGINT NOT NULL, low BLOB NOT NULL, lines TEXT NOT NULL, PRIMARY KEY (run, low) );
CREATE TABLE id_ranges ( topic_id BIGINT NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL, PRIMARY KEY (topic_id,
    first) ) WITHOUT ROWID;
CREATE TABLE gone_ids ( topic_id BIGINT NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL, gone_at BIGINT NOT
    NULL, digests BLOB NOT NULL, expiries BLOB, PRIMARY KEY (topic_id, first) );
CREATE INDEX gone_ids_gone ON gone_ids (gone_at);
