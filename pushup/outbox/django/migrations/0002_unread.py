from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]  # Django has no types
    dependencies = [("pushup_outbox", "0001_initial")]

    operations = [
        migrations.AddField("OutboxMessage", "unread_after", models.FloatField(null=True)),
        migrations.AddField("OutboxMessage", "unread_for", models.TextField(null=True)),
    ]
