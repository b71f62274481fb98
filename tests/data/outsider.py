"""A client that knows nothing of berth but the socket: it learns the services and their messages
by reflection, asks, and prints what it got as one JSON object."""
import json
import sys

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

socket, container = sys.argv[1:]
# Without it the escaped path of the socket goes as the authority, which HTTP/2 servers refuse.
options = [("grpc.default_authority", "localhost")]
channel = grpc.insecure_channel("unix:" + socket, options=options)
database = ProtoReflectionDescriptorDatabase(channel)
pool = descriptor_pool.DescriptorPool(database)


def ask(service, method, request):
    descriptor = pool.FindServiceByName(service).FindMethodByName(method)
    question = message_factory.GetMessageClass(descriptor.input_type)
    answer = message_factory.GetMessageClass(descriptor.output_type)
    call = channel.unary_unary(
        f"/{service}/{method}",
        request_serializer=question.SerializeToString,
        response_deserializer=answer.FromString,
    )
    reply = call(json_format.ParseDict(request, question()), timeout=10)
    return json_format.MessageToDict(reply, preserving_proto_field_name=True)


key = {"network": "berth-test", "container_id": container, "interface": "eth0"}
health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
unknown = dict(key, container_id="nobody")
try:
    ask("berth.v1.Ipam", "GetIPInfo", {"key": unknown})
    refusal = "none"
except grpc.RpcError as error:
    refusal = error.code().name
print(json.dumps({
    "services": sorted(database.get_services()),
    "health": health_pb2.HealthCheckResponse.ServingStatus.Name(health.status),
    "attachments": ask("berth.v1.Inspect", "ListAttachments", {}),
    "info": ask("berth.v1.Ipam", "GetIPInfo", {"key": key}),
    "of_an_unknown_key": refusal,
}))
