# The image of the sample policies, and a template for your own. The gateway's image contains the worker SDK:
#
#     docker build -f deploy/worker.Dockerfile -t sample-policies:0.1.0 .
#
# For policies of your own, in a folder with policies.py (and requirements.txt, if they need more packages), uncomment
# the lines below, delete the last two, and build with that folder:
#
#     docker build -f deploy/worker.Dockerfile -t pod-policies:1.0.0 path/to/folder
# You build the gateway's image too. When it is pushed, name it by its digest:
#
#     --build-arg GATEWAY_IMAGE=registry.example/admission-gateway@sha256:...
ARG GATEWAY_IMAGE=admission-gateway:0.1.0

FROM ${GATEWAY_IMAGE}
EXPOSE 50051

# USER 0:0
# COPY requirements.txt /tmp/
# RUN pip --python /opt/admission-gateway/bin/python install --no-cache-dir --require-hashes -r /tmp/requirements.txt
# USER 65532:65532
# COPY policies.py /policies/
# ENTRYPOINT ["python", "/policies/policies.py"]
# CMD ["--listen", "0.0.0.0:50051"]

ENTRYPOINT ["python", "-m", "admission_gateway_worker.samples"]
CMD ["--listen", "0.0.0.0:50051"]
