"""A stand-in for the server of Weights & Biases: what the package ``wandb`` asks, and no more.

It answers what a run, ``wandb login`` and ``wandb sync`` ask and keeps in memory what it gets.
Whatever else is asked is refused and noted, so that a newer ``wandb`` shows what is lacking. Rows
of the history are kept as they come; whether the real server merges rows of one step is not known.
"""

import base64
import gzip
import json
import re
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

KEY = "0123456789" * 4
ENTITY = "tester"
_HISTORY, _EVENTS, _OUTPUT = "wandb-history.jsonl", "wandb-events.jsonl", "output.log"
_SUMMARY = "wandb-summary.json"


@dataclass
class StoredRun:
    """What the server knows of a run.

    Attributes:
        about: The newest value of each argument that ``upsertBucket`` was given.
        lines: The lines of each streamed file.
        exit_code: Of the process; None while the run is not over.
        starts: How often the run was begun or resumed.
    """

    about: dict = field(default_factory=dict)
    lines: dict = field(default_factory=lambda: defaultdict(list))
    exit_code: int | None = None
    starts: int = 0

    @property
    def history(self):
        return [json.loads(line) for line in self.lines[_HISTORY]]

    @property
    def summary(self):
        return json.loads(self.lines[_SUMMARY][-1]) if self.lines[_SUMMARY] else {}

    @property
    def config(self):
        config = json.loads(self.about.get("config") or "{}")
        return {name: entry["value"] for name, entry in config.items()}


class WandbServer:
    """The server and what it got; listens on a free port of this machine while `open`.

    Attributes:
        runs: Runs by id.
        artifacts: Artifacts in order: name, type, aliases, metadata and, once committed, the files.
        files: What was uploaded, by run or artifact and name.
        unknown: What was asked and cannot be answered.
        status: The HTTP status of every answer where it is not None: a server that is broken.
        requests: How many requests came.
    """

    def __init__(self):
        self.runs = defaultdict(StoredRun)
        self.artifacts = []
        self.files = {}
        self.unknown = []
        self.status = None
        self.requests = 0
        self._lock = Lock()
        self._http = None

    @contextmanager
    def open(self):
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.close()
            thread.join()

    def close(self):
        """Refuse every connection from here on."""
        if self._http is None:
            return
        self._http.shutdown()
        self._http.server_close()
        self._http = None

    def fail(self, status):
        """Answer everything with an HTTP status from here on; None answers again."""
        self.status = status

    def answer(self, method, path, headers, body):
        """Return an HTTP status and the answer, which is JSON or bytes."""
        with self._lock:
            self.requests += 1
            if self.status is not None:
                return self.status, {"error": "broken"}
            if path == "/graphql":
                if not _has_key(headers):
                    return 401, {"errors": [{"message": "invalid credentials"}]}
                return self._graphql(json.loads(body))
            if path.startswith("/storage/"):
                self.files[path.removeprefix("/storage/")] = body
                return 200, {}
            if found := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", path):
                return self._stream(self.runs[found[1]], json.loads(body))
            if path.startswith("/sdk/otel/"):
                return 404, {}
            self.unknown.append(f"{method} {path}")
            return 404, {}

    def _graphql(self, asked):
        operation = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])[1]
        reply = getattr(self, f"_on_{operation}", None)
        if reply is None:
            self.unknown.append(operation)
            return 400, {"errors": [{"message": f"unknown: {operation}"}]}
        return 200, {"data": reply(asked.get("variables") or {})}

    def _stream(self, run, sent):
        for name, part in (sent.get("files") or {}).items():
            lines, start = run.lines[name], part.get("offset", 0)
            if start > len(lines):
                return 400, {"error": f"{name}: a gap before line {start}"}
            lines[start : start + len(part["content"])] = part["content"]
        if sent.get("complete"):
            run.exit_code = sent["exitcode"]
        return 200, {"limits": {}}

    def _on_Viewer(self, given):
        viewer = {"id": "viewer", "entity": ENTITY, "username": ENTITY, "email": "t@example.org"}
        return {"viewer": {**viewer, "flags": "{}", "teams": {"edges": []}}}

    def _on_ServerFeaturesQuery(self, given):
        return {"serverInfo": {"features": []}}

    def _on_OrganizationCoreWeaveOrganizationID(self, given):
        return {"entity": {"organization": None}}

    def _on_RunResumeStatus(self, given):
        run = self.runs.get(given["name"])
        model = {"id": "project", "name": given["project"]}
        bucket = None if run is None else self._bucket(run, given["name"])
        return {"model": {**model, "entity": {"id": "entity", "name": ENTITY}, "bucket": bucket}}

    def _bucket(self, run, name):
        return {
            "id": f"id-{name}",
            "name": name,
            "displayName": run.about.get("displayName"),
            "summaryMetrics": json.dumps(run.summary),
            "logLineCount": len(run.lines[_OUTPUT]),
            "historyLineCount": len(run.lines[_HISTORY]),
            "eventsLineCount": len(run.lines[_EVENTS]),
            "historyTail": json.dumps(run.lines[_HISTORY][-1:]),
            "eventsTail": json.dumps(run.lines[_EVENTS][-1:]),
            "config": run.about.get("config") or "{}",
            "tags": run.about.get("tags") or [],
            "notes": None,
            # Without it the run counts as one that was created and never started.
            "wandbConfig": json.dumps({"t": run.config.get("_wandb", {}).get("t", {})}),
        }

    def _on_UpsertBucket(self, given):
        new = given["name"] not in self.runs
        run = self.runs[given["name"]]
        run.about |= {name: value for name, value in given.items() if value is not None}
        if given.get("host"):
            run.starts, run.exit_code = run.starts + 1, None
        project = {"id": "project", "name": run.about["project"]}
        bucket = self._bucket(run, given["name"]) | {
            "description": None,
            "sweepName": None,
            "project": {**project, "entity": {"id": "entity", "name": ENTITY}},
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": new}}

    def _on_CreateRunFiles(self, given):
        files = [self._place(given["run"], name) for name in given["files"]]
        return {"createRunFiles": {"runID": "id", "uploadHeaders": [], "files": files}}

    def _place(self, owner, name):
        """Return where to upload a file; run and artifact files are stored alike."""
        url = f"{self.url}/storage/{owner}/{name}"
        return {"id": name, "name": name, "displayName": name, "uploadUrl": url}

    def _on_ArtifactType(self, given):
        name = given["name"].rpartition(":")[0]
        types = [made["type"] for made in self.artifacts if made["name"] == name]
        found = {"artifactType": {"name": types[0]}} if types else None
        return {"project": {"artifact": found}}

    def _on_CreateArtifact(self, given):
        asked = given["input"]
        made = {
            "name": asked["artifactCollectionName"],
            "type": asked["artifactTypeName"],
            "aliases": [alias["alias"] for alias in asked["aliases"]],
            "metadata": json.loads(asked.get("metadata") or "{}"),
            "files": None,
        }
        self.artifacts.append(made)
        artifact = {"id": f"artifact-{len(self.artifacts) - 1}", "state": "PENDING"}
        return {"createArtifact": {"artifact": artifact | {"artifactSequence": {}}}}

    def _on_CreateArtifactManifest(self, given):
        place = self._place(given["artifactID"], given["name"]) | {"uploadHeaders": []}
        manifest = {"id": f"manifest-{given['artifactID']}", "file": place}
        return {"createArtifactManifest": {"artifactManifest": manifest}}

    def _on_UpdateArtifactManifest(self, given):
        manifest = given["artifactManifestID"]
        place = self._place(manifest, "wandb_manifest.json") | {"uploadHeaders": []}
        return {"updateArtifactManifest": {"artifactManifest": {"id": manifest, "file": place}}}

    def _on_CreateArtifactFiles(self, given):
        nodes = [
            self._place(asked["artifactID"], asked["name"])
            | {
                "storagePath": asked["name"],
                "uploadHeaders": [],
                "uploadMultipartUrls": None,
                "artifact": {"id": asked["artifactID"]},
            }
            for asked in given["input"]["artifactFiles"]
        ]
        files = {"edges": [{"node": node} for node in nodes]}
        return {"createArtifactFiles": {"files": files}}

    def _on_CommitArtifact(self, given):
        identifier = given["artifactID"]
        files = {
            name.removeprefix(f"{identifier}/"): content
            for name, content in self.files.items()
            if name.startswith(f"{identifier}/")
        }
        self.artifacts[int(identifier.rpartition("-")[2])]["files"] = files
        return {"commitArtifact": {"artifact": {"id": identifier, "digest": ""}}}


class _Handler(BaseHTTPRequestHandler):
    server_of: WandbServer

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        status, reply = self.server_of.answer(self.command, self.path, self.headers, body)
        content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST

    def log_message(self, format, *args):
        pass


def _has_key(headers):
    scheme, _, credentials = headers.get("Authorization", "").partition(" ")
    return scheme == "Basic" and base64.b64decode(credentials) == f"api:{KEY}".encode()
