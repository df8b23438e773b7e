// BullMQ on Redis, with undici: a job is removed after it has returned; a worker that dies loses its lock and the job runs again.
import { createHmac } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
import { createRequire } from 'node:module'

const require = createRequire(process.env.PEER_MODULES + '/')
const { Queue, Worker } = require('bullmq')
const { Pool } = require('undici')

const CONCURRENCY = 200
const CONNECTIONS = 100
const AT_ONCE = 1000
const SUBSCRIBERS = 200
const KEY = 'a key of benchmarks, 32 bytes...'
const redis = new URL(process.env.PEER_REDIS_URL)
const connection = { host: redis.hostname, port: Number(redis.port), maxRetriesPerRequest: null }

function* messages(count, url) {
  const packed = readFileSync(new URL('../../fanout/demo/data/air-cargo-day.jsonl.gz', import.meta.url))
  const day = gunzipSync(packed).toString().trimEnd().split('\n').map((line) => JSON.parse(line))
  for (let made = 0; made < count; made++) {
    const number = Math.floor(made / SUBSCRIBERS)
    const line = day[number % day.length]
    const path = `/s-${made % SUBSCRIBERS}`
    const key = `shipment:B-${number}:subscriber:s-${made % SUBSCRIBERS}:version:1`
    yield { url, path, key, event_type: line.event_type, body: JSON.stringify(line.payload) }
  }
}

async function fill(count, url) {
  const queue = new Queue('peer', { connection })
  let batch = []
  for (const message of messages(count, url)) {
    batch.push({ name: 'deliver', data: message, opts: { removeOnComplete: true } })
    if (batch.length === AT_ONCE) { await queue.addBulk(batch); batch = [] }
  }
  if (batch.length) await queue.addBulk(batch)
  await queue.close()
}

function work() {
  const pools = new Map()
  const deliver = async ({ data }) => {
    if (!pools.has(data.url)) pools.set(data.url, new Pool(data.url, { connections: CONNECTIONS, pipelining: 1 }))
    const now = String(Math.floor(Date.now() / 1000))
    const signature = createHmac('sha256', KEY).update(`${data.key}.${now}.${data.body}`).digest('base64')
    const answer = await pools.get(data.url).request({
      method: 'POST', path: data.path, body: data.body, headersTimeout: 15000,
      headers: {
        'content-type': 'application/json', 'idempotency-key': data.key, 'fanout-event-type': data.event_type,
        'webhook-id': data.key, 'webhook-timestamp': now, 'webhook-signature': `v1,${signature}`
      }
    })
    await answer.body.dump()
    if (answer.statusCode < 200 || answer.statusCode > 299) throw new Error(`answered ${answer.statusCode}`)
  }
  new Worker('peer', deliver, { connection, concurrency: CONCURRENCY, removeOnComplete: { count: 0 } })
}

const [, , what, count, url] = process.argv
if (what === 'fill') await fill(Number(count), url)
if (what === 'work') work()
